// Gathers the facts of this node, in two seconds at most where nothing hangs. Reads only, but for a file in
// the config's output_dir that is gone again before this returns.
#pragma once

#include <optional>
#include <string>

#include "agent/core/job_spec.h"
#include "cmd/doctor/core/facts.h"
#include "cmd/machine/machine.h"
#include "cmd/options/options.h"
#include "proto/core/status.h"

namespace dtrun::doctor {

// The job as this node would run it: with a config or a program, else with nothing to run.
struct Job {
  std::optional<JobSpec> spec;  // nothing: it would be refused
  std::string refusal;
};
Job plan_job(cmd::Options options, const cmd::Machine& machine, const cmd::Environment& environment);

struct Surroundings {
  std::string endpoint_host;  // the way there is looked at; empty: none
  int endpoint_port = 0;
  bool looks_at_listener = true;  // else another one is known to be there
};

NodeFacts gather(const Job& job, const Surroundings& surroundings);

}  // namespace dtrun::doctor
