// The options of the group "Many hosts": from the command line to a launch.
#pragma once

#include <string>
#include <vector>

#include "cmd/launch/launcher.h"
#include "cmd/options/options.h"
#include "proto/core/status.h"

namespace dtrun::cmd {

// True if hosts are named, so that this process launches and is no agent.
bool names_hosts(const Options& options);

// Refuses options that have a meaning for named hosts alone: without hosts --check would start the job.
// EX_USAGE. One that a variable gives is refused only beside --check or --detach. REQUIRES:
// !names_hosts(options).
Status check_no_hosts(const Options& options);

// `words`: of the command line, which every host gets as they are. Reads the hostfile and the config.
// EX_USAGE, EX_CONFIG or EX_NOINPUT on failure.
Result<LaunchPlan> make_launch_plan(const Options& options, const std::vector<std::string>& words,
                                    const Environment& environment, const Notice& notice);

// The hosts and what would travel to them, as JSON; secrets are masked.
std::string launch_json(const LaunchPlan& plan);

}  // namespace dtrun::cmd
