// What no single option of a config can be blamed for.
#pragma once

#include <cstdint>
#include <string>

#include "worker/config/config.h"
#include "worker/config/faults.h"

namespace dtrun::worker {

// Adds what is wrong between options that are each right. An option with a fault of its own is left out of
// it.
void check_together(const JobConfig& config, Faults* faults);

// Why a job cannot train with data of so many samples; empty: it can.
std::string too_few_samples(const TrainConfig& train, std::int64_t samples);

}  // namespace dtrun::worker
