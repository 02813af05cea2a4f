// Admission: checks that a Join fits the run. It must name the same run, job and settings. Pure. A refusal
// says what differs and what to do about it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "rendezvous/core/messages.h"
#include "rendezvous/core/run/restart_policy.h"

namespace dtrun::rendezvous {

// The settings of the run's first member. The other members have to ask for the same run id, job, node counts
// and restarts, to start the same program, and to compute on the same kind of device; their times are not
// compared.
struct Settings {
  std::string run_id;
  std::string job;
  int min_nodes = 1;
  int max_nodes = 1;
  RestartLimits restarts;
  Millis last_call = 0;
  Millis join_timeout = 0;
  Millis heartbeat_timeout = 0;
  bool in_memory_recovery = false;
  std::string device, gpu;
  std::string host;  // of that member, as its command below: other arguments are told, not refused
  std::vector<std::string> command;
};

Settings settings_of(const Join& join);

struct Refusal : Rejected {
  std::string to_others =
      {};  // why, in the words of the nodes that wait: "--max_restarts is 0 there but 1 here"
};

// The reason why `join` is invalid by itself; none if it is valid.
std::optional<Refusal> refuse_malformed(const Join& join);

// The reason why `join` does not belong to the run; none if it does.
std::optional<Refusal> refuse_other(const Settings& run, const Join& join);

// The program that a command starts, without its folder: a script or module rather than its interpreter, but
// the shell or interpreter for "sh -c TEXT". Options stay out: each node may have its own.
std::string program_of(const std::vector<std::string>& command);

// How the member's command differs from the run's, as a sentence; empty if it does not.
std::string other_command(const Settings& run, const Join& join);

// The refusal of a node rank that the live member on `host` has.
Refusal refuse_node_rank(int node_rank, const std::string& host);

}  // namespace dtrun::rendezvous
