// Whether this machine has the memory that its workers of a job need.
#pragma once

#include "agent/core/job_spec.h"
#include "cmd/plan/machine.h"

namespace dtrun::cmd {

// EX_CONFIG if not, with the numbers and what to change. Of other programs than the built-in trainer, of
// workers that compute in the memory of GPUs, and of what the workers will refuse anyway, nothing is said.
Status check_memory(const JobSpec& spec, const std::optional<worker::Available>& available);

}  // namespace dtrun::cmd
