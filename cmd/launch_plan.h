// From options and config to a JobSpec: every value checked and every default filled in, once, before
// anything starts. Reads the config file and looks at the data that it names; starts nothing.
#pragma once

#include <string>

#include "agent/job_spec.h"
#include "cmd/options.h"
#include "proto/status.h"

namespace dtrun::cmd {

// What this machine has; main asks the system, tests invent it.
struct Machine {
  int cpus = 1;  // that this process may use
  int gpus = 0;  // that dtrun-worker can use
  std::string worker_binary;
};

// EX_USAGE, EX_CONFIG or EX_NOINPUT on failure. `notice` gets one line for each option without effect.
Result<JobSpec> make_job_spec(const Options& options, const Machine& machine, const Environment& environment,
                              const std::function<void(const std::string&)>& notice);

// The plan as JSON for --dry_run, 2-space indented, ending with a newline.
std::string describe_plan(const JobSpec& spec);

}  // namespace dtrun::cmd
