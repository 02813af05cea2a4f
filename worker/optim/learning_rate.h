// Learning-rate schedules: pure functions of (config, step).
#pragma once

#include <cstdint>

#include "worker/config/config.h"

namespace dtrun::worker {

// config.warmup_steps, or else config.warmup_ratio of the run.
std::int64_t warmup_steps(const TrainConfig& config, std::int64_t total_steps);

// The factor schedules of Hugging Face transformers (get_scheduler), times config.learning_rate, for `step`
// counted from 0 out of total_steps.
double learning_rate_at(const TrainConfig& config, std::int64_t step, std::int64_t total_steps);

}  // namespace dtrun::worker
