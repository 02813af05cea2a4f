// From options and config to a JobSpec: every value checked and every default filled in, once, before
// anything starts. Reads the config file and looks at the data that it names; starts nothing.
#pragma once

#include "agent/core/job_spec.h"
#include "cmd/options/options.h"
#include "cmd/plan/machine.h"
#include "proto/core/status.h"

namespace dtrun::cmd {

// EX_USAGE, EX_CONFIG or EX_NOINPUT on failure. `notice` gets one line for each option without effect.
Result<JobSpec> make_job_spec(const Options& options, const Machine& machine, const Environment& environment,
                              const Notice& notice);

}  // namespace dtrun::cmd
