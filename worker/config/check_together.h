// What no single option of a config can be blamed for.
#pragma once

#include "worker/config/config.h"
#include "worker/config/faults.h"

namespace dtrun::worker {

// Adds what is wrong between options that are each right. An option with a fault of its own is left out of
// it.
void check_together(const JobConfig& config, Faults* faults);

}  // namespace dtrun::worker
