// Checks that the data of a job fits its model, which neither of them tells alone.
#pragma once

#include "agent/core/job_spec.h"
#include "proto/core/status.h"

namespace dtrun::cmd {

// EX_CONFIG if the data does not fit, in the words of the workers, who would refuse it one by one. OK for
// other programs than the built-in trainer, and for data that cannot be looked at any more.
Status check_fit(const JobSpec& spec);

}  // namespace dtrun::cmd
