// Whether the data of a job fits its model: what neither of them tells alone.
#pragma once

#include "agent/core/job_spec.h"
#include "proto/core/status.h"

namespace dtrun::cmd {

// EX_CONFIG if not, in the words of the workers, who would refuse it one by one. Of other programs than the
// built-in trainer, and of data that cannot be looked at any more, nothing is said.
Status check_fit(const JobSpec& spec);

}  // namespace dtrun::cmd
