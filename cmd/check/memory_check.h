// Checks that this machine has the memory that its workers of a job need.
#pragma once

#include <optional>

#include "agent/core/job_spec.h"
#include "cmd/machine/machine.h"

namespace dtrun::cmd {

// EX_CONFIG if memory is short, with the numbers and what to change. OK for other programs than the built-in
// trainer and for a config that the workers will refuse anyway. The memory of GPUs is looked at for
// microbatches in lock step alone.
Status check_memory(const JobSpec& spec, const std::optional<worker::Available>& available);

// Fills in the workers that the job must have for this machine's memory to be enough for its own.
// REQUIRES: check_memory() is OK
void find_least_workers(JobSpec* spec, const std::optional<worker::Available>& available);

}  // namespace dtrun::cmd
