// `dtrun --hostfile`: one agent on each host over ssh, their output on this terminal, one exit code. Carries
// out what cmd/launch/core/launch.h decides.
#pragma once

#include <string>
#include <vector>

#include "agent/core/job_spec.h"
#include "cmd/hosts/host.h"
#include "cmd/launch/core/launch.h"
#include "proto/core/times.h"
#include "proto/launch.pb.h"

namespace dtrun::cmd {

struct LaunchPlan {
  std::vector<Host> hosts;
  LaunchSettings settings;
  std::vector<std::string> ssh;  // the remote shell's words before the host
  bool is_ssh = true;            // and not another remote shell
  bool accept_new_host_keys = false;
  launch::Job job;                 // but what differs from host to host
  bool workers_are_given = false;  // by --nproc_per_node, so a host's slots do not count
  OutputSpec output;               // of this terminal
  bool gives_input = false;        // this process's standard input is the workers' on the first host
  // To come back to a detached job: the hosts' numbers in its run, and the request to each.
  std::vector<int> nodes = {};
  launch::Attach attach = {};
  std::vector<int> signals = {};  // that each of them gets
  std::string doctor = {};        // the command that tells why hosts do not meet; empty: none is told
  Times times = {};
};

// The exit code of the job, once no agent runs any more. Takes over all signals of the process, which must
// have one thread.
// `ended`, if given: whether every host has told its end.
int run_launch(LaunchPlan plan, bool* ended = nullptr);

}  // namespace dtrun::cmd
