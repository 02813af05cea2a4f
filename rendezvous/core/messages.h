// What the coordinator hears and says, as plain structs: the language of the pure core (state.h). Their
// meaning is that of proto/rendezvous.proto, into and out of which convert.h turns them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "proto/core/exit_codes.h"

namespace dtrun::rendezvous {

using Millis = std::int64_t;         // steady clock of the coordinator's host
using ConnectionId = std::uint64_t;  // one stream; a member that reconnects comes with another one
using MemberId = std::string;

// How one worker ended.
struct Outcome {
  int rank = 0;
  int local_rank = 0;
  int pid = 0;
  std::string host;
  int group_rank = 0;
  int exit_code = 0;  // valid when signal is 0
  int signal = 0;
  bool collateral = false;
  bool retryable = true;
  std::vector<std::string> stderr_tail;
  std::string error;
  double uptime_s = 0;
  std::string traceback;  // from its error file; may be empty
  double ended_at = 0;    // seconds since 1970 by its host's clock: for people, never compared
  EndCause cause = EndCause::kUnknown;
};

// What is remembered of earlier generations to tell a crash loop from bad luck (restart_policy.h). Members
// carry it for a coordinator that is restarted.
struct CrashHistory {
  int quick_restarts = 0;      // in a row, of generations that got nowhere
  std::int64_t best_step = 0;  // that any generation got to
  int alike = 0;               // failures in a row that are alike, before the job got anywhere; of them:
  int rank = 0;
  int exit_code = 0;
  int signal = 0;
};

// ---- from agents and from the driver

struct Join {
  std::string run_id;
  MemberId member_id;
  std::string host;
  std::string address;  // never empty: the driver fills in the stream's peer address
  int nproc = 1;
  int node_rank = -1;  // -1: any
  int min_nodes = 1;
  int max_nodes = 1;
  int max_restarts = 0;
  Millis last_call = 5000;
  Millis join_timeout = 600000;
  Millis heartbeat_timeout = 15000;
  std::string job;
  int master_port = 0;
  int group_rank = -1;  // the rank that it had in Event::generation; -1: none
  // What a coordinator that was restarted needs to know of that generation; node_count 0: nothing.
  int node_count = 0;
  int first_rank = 0;
  int world_size = 0;
  int restart_count = 0;
  int membership_changes = 0;
  CrashHistory crash_history;
  Millis age = 0;  // of that generation
};
// How far the built-in trainer is, as one of a node's workers said last.
struct Progress {
  std::int64_t step = 0;
  std::int64_t total_steps = 0;  // 0: the workers report no progress
  double epoch = 0;
  double loss = 0;
  double samples_per_second = 0;
};
struct Heartbeat {
  std::vector<int> pids;  // by local rank; 0: that worker does not run
  Progress progress;
};
struct Failure {
  Outcome outcome;
};
struct Stopped {
  std::vector<Outcome> outcomes;
};
struct Finished {};
struct Leave {
  int signal = 0;
};
struct StreamBroken {
  std::string why;  // for people, may be empty
};
struct Tick {};

struct Event {
  ConnectionId from = 0;        // 0 for Tick
  std::int64_t generation = 0;  // the sender's newest
  std::variant<Join, Heartbeat, Failure, Stopped, Finished, Leave, StreamBroken, Tick> body;
};

// ---- to agents and to the driver

struct Welcome {
  std::string address;
  Millis heartbeat_interval = 0;
  bool resumed = false;  // the member has its seat in the generation that it named
};
struct Rejected {
  enum Reason { kUnspecified, kOtherRun, kOtherJob, kOtherSettings, kNodeRankTaken, kJobOver };
  Reason reason = kUnspecified;
  std::string message;
  std::string job;  // kOtherJob: the run's text
};
struct Waiting {
  int joined = 0;
  int min_nodes = 0;
  int max_nodes = 0;
  bool spare = false;
  Millis restart_in = 0;  // of the back-off before a restart, 0: none
  std::string reason;     // of that restart
};
struct Node {
  std::string host;
  std::string address;
  int nproc = 0;
  int first_rank = 0;
  MemberId member_id;
};
// One generation. Its members are told all but the other nodes, which keeps a start linear in their number.
struct Membership {
  std::int64_t generation = 0;
  int world_size = 0;
  std::vector<Node> nodes;     // in group-rank order
  int restart_count = 0;       // after worker failures
  int membership_changes = 0;  // nodes lost or taken in
  CrashHistory crash_history;  // when it started
  std::string master_address;
  int master_port = 0;
  std::string reason;
};
struct Assignment {
  int group_rank = 0;
  std::shared_ptr<const Membership> membership;
};
struct StopOrder {
  std::string reason;
};
struct JobResult {
  int exit_code = 0;
  std::string reason;
  std::shared_ptr<const Outcome> first_failure;  // null when no worker failed
  std::vector<Outcome> followers;                // by rank, the first kMaxFollowers
  int more_followers = 0;                        // left out of those
  int restart_count = 0;
  int membership_changes = 0;
};
struct JobEnd {
  std::shared_ptr<const JobResult> result;
};
// The driver ends the stream once what was said before is written, or at once if the peer is silent anyway.
struct Close {
  bool abort = false;
};

struct Action {
  ConnectionId to = 0;
  std::int64_t generation = 0;  // the coordinator's newest
  std::variant<Welcome, Rejected, Waiting, Assignment, StopOrder, JobEnd, Close> body;
};

}  // namespace dtrun::rendezvous
