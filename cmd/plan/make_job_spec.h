// From options and config to a JobSpec: every value checked and every default filled in, once, before
// anything starts. Reads the config file and looks at the data that it names; starts nothing.
#pragma once

#include "agent/core/job_spec.h"
#include "cmd/machine/machine.h"
#include "cmd/options/options.h"
#include "proto/core/status.h"
#include "worker/config/config.h"

namespace dtrun::cmd {

// Reads the config that the words name, unless its text is there already, checks it, and adds the options of
// its launch section to `options`. EX_USAGE, EX_CONFIG or EX_NOINPUT on failure. REQUIRES:
// names_config(*options).
Result<worker::JobConfig> settle_config(Options* options);

// EX_USAGE: no program is named. The message says so if an option took it for its value.
Status nothing_to_run(const Options& options);

// EX_USAGE, EX_CONFIG or EX_NOINPUT on failure. `notice` gets one line for each option without effect.
Result<JobSpec> make_job_spec(const Options& options, const Machine& machine, const Environment& environment,
                              const Notice& notice);

}  // namespace dtrun::cmd
