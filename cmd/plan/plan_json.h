// The resolved plan as --dry_run shows it: everything that decides what would run, under the options' names.
#pragma once

#include <string>

#include "agent/core/job_spec.h"

namespace dtrun::cmd {

// JSON, 2-space indented, ending with a newline.
std::string plan_json(const JobSpec& spec);

}  // namespace dtrun::cmd
