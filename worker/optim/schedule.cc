// Learning-rate schedules, pure functions of (config, step).
#include <algorithm>
#include <cmath>
#include <numbers>

#include "worker/base/error.h"
#include "worker/optim/optimizer.h"

namespace dtrun::worker {
namespace {

double ratio(std::int64_t numerator, std::int64_t denominator) {
  return static_cast<double>(numerator) / static_cast<double>(std::max<std::int64_t>(1, denominator));
}

// Factor of the learning rate after the warm-up.
double factor_after_warmup(const TrainConfig& config, std::int64_t step, std::int64_t total_steps) {
  const std::string& type = config.lr_scheduler_type;
  if (type == "constant_with_warmup") return 1;
  const std::int64_t decay_steps = total_steps - config.warmup_steps;
  if (type == "linear") return std::max(0.0, ratio(total_steps - step, decay_steps));
  if (type == "cosine") {
    const double progress = ratio(step - config.warmup_steps, decay_steps);
    return std::max(0.0, 0.5 * (1 + std::cos(std::numbers::pi * progress)));
  }
  throw WorkerError(kExitConfig, "/train/lr_scheduler_type: \"" + type +
                                     "\" is not a schedule; known: \"constant\", \"constant_with_warmup\", "
                                     "\"linear\", \"cosine\"");
}

}  // namespace

double learning_rate_at(const TrainConfig& config, std::int64_t step, std::int64_t total_steps) {
  if (config.lr_scheduler_type == "constant")
    return config.learning_rate;  // has no warm-up, as in transformers
  if (step < config.warmup_steps) return config.learning_rate * ratio(step, config.warmup_steps);
  return config.learning_rate * factor_after_warmup(config, step, total_steps);
}

}  // namespace dtrun::worker
