// Gathers the facts of this node, in two seconds at most where nothing hangs. Reads only.
#pragma once

#include <optional>
#include <string>

#include "agent/core/job_spec.h"
#include "cmd/check/core/facts.h"
#include "cmd/machine/machine.h"
#include "cmd/options/options.h"
#include "proto/core/status.h"

namespace dtrun::cmd {

// The job as this node would run it: with a config or a program, else with nothing to run.
struct CheckedJob {
  std::optional<JobSpec> spec = {};  // nothing: there is no plan
  std::string refusal = {};          // why a launch would refuse it; empty: it would not
};
// `nodes`: of the job, if the options do not say.
CheckedJob plan_job(Options options, const Machine& machine, const Environment& environment, int nodes = 0);

struct Surroundings {
  std::string endpoint_host = {};  // the way there is looked at; empty: none
  int endpoint_port = 0;
  bool looks_at_listener = true;  // else another one is known to be there
};

NodeFacts gather(const CheckedJob& job, const Surroundings& surroundings);

}  // namespace dtrun::cmd
