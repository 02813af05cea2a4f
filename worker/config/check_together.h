// Faults of a config that concern several options together.
#pragma once

#include <cstdint>
#include <string>

#include "worker/config/config.h"
#include "worker/config/faults.h"

namespace dtrun::worker {

// Adds the faults between options that are valid by themselves. Options with faults of their own are left
// out.
void check_together(const JobConfig& config, Faults* faults);

// The reason why a job cannot train with so many samples; empty: it can.
std::string too_few_samples(const TrainConfig& train, std::int64_t samples);

}  // namespace dtrun::worker
