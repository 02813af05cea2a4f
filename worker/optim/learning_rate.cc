#include "worker/optim/learning_rate.h"

#include <algorithm>
#include <cmath>

#include "worker/core/math.h"

namespace dtrun::worker {
namespace {

double ratio(std::int64_t numerator, std::int64_t denominator) {
  return static_cast<double>(numerator) / static_cast<double>(std::max<std::int64_t>(1, denominator));
}

// The factor of a cosine schedule; 1 at its beginning. progress: 0 at the end of the warm-up, 1 at the end of
// the run.
double cosine(double progress, double cycles) { return 0.5 * (1 + cosine_of_turns(cycles * progress)); }

// Maps `factor`, from 1 to 0, to a factor from 1 to `floor`.
double above(double floor, double factor) { return std::max(0.0, factor * (1 - floor) + floor); }

struct Run {
  std::int64_t warmup_steps, total_steps;
  double progress(std::int64_t step) const { return ratio(step - warmup_steps, total_steps - warmup_steps); }
};

double polynomial(const TrainConfig& config, const Run& run, std::int64_t step) {
  const double end = config.lr_scheduler_kwargs.lr_end.value_or(kDefaultLrEnd) / config.learning_rate;
  const double left = std::max(0.0, 1 - run.progress(step));
  return power(left, config.lr_scheduler_kwargs.power.value_or(1)) * (1 - end) + end;
}

double inverse_sqrt(const TrainConfig& config, const Run& run, std::int64_t step) {
  constexpr std::int64_t kWithoutWarmup = 10000;
  const std::int64_t otherwise = run.warmup_steps > 0 ? run.warmup_steps : kWithoutWarmup;
  const std::int64_t timescale = config.lr_scheduler_kwargs.timescale.value_or(otherwise);
  return 1 / std::sqrt(ratio(step + timescale - run.warmup_steps, timescale));
}

double warmup_stable_decay(const SchedulerKwargs& kwargs, const Run& run, std::int64_t step) {
  const double floor = kwargs.min_lr_ratio.value_or(0);
  if (step < run.warmup_steps) {
    const double progress = ratio(step, run.warmup_steps);
    switch (kwargs.warmup_type.value_or(RampShape::kLinear)) {
      case RampShape::kLinear:
        return above(floor, progress);
      case RampShape::kCosine:
        return above(floor, 0.5 * (1 - cosine_of_turns(progress / 2)));
      case RampShape::kOneMinusSqrt:
        return above(floor, 1 - std::sqrt(1 - progress));
    }
  }
  const std::int64_t decay_steps = kwargs.num_decay_steps.value_or(0);
  const std::int64_t decay_begin =
      run.warmup_steps + kwargs.num_stable_steps.value_or(run.total_steps - run.warmup_steps - decay_steps);
  if (step < decay_begin) return 1;
  if (step >= decay_begin + decay_steps) return floor;
  const double progress = ratio(step - decay_begin, decay_steps);
  switch (kwargs.decay_type.value_or(RampShape::kCosine)) {
    case RampShape::kLinear:
      return above(floor, 1 - progress);
    case RampShape::kCosine:
      return above(floor, cosine(progress, kwargs.num_cycles.value_or(0.5)));
    case RampShape::kOneMinusSqrt:
      return above(floor, 1 - std::sqrt(progress));
  }
  return floor;
}

double cosine_with_restarts(double progress, double cycles) {
  if (progress >= 1) return 0;
  return std::max(0.0, cosine(std::fmod(cycles * progress, 1.0), 0.5));
}

double cosine_with_min_lr(const TrainConfig& config, double progress) {
  const SchedulerKwargs& kwargs = config.lr_scheduler_kwargs;
  const double floor = kwargs.min_lr ? *kwargs.min_lr / config.learning_rate : kwargs.min_lr_rate.value_or(0);
  return above(floor, cosine(progress, kwargs.num_cycles.value_or(0.5)));
}

// Rises from 0 over the warm-up, where the schedule has one of this kind.
double factor(const TrainConfig& config, const Run& run, std::int64_t step) {
  const SchedulerKwargs& kwargs = config.lr_scheduler_kwargs;
  const SchedulerType type = config.lr_scheduler_type;
  if (type == SchedulerType::kConstant) return 1;  // has no warm-up, as in transformers
  if (type == SchedulerType::kWarmupStableDecay) return warmup_stable_decay(kwargs, run, step);
  if (step < run.warmup_steps) return ratio(step, run.warmup_steps);
  switch (type) {
    case SchedulerType::kConstant:
    case SchedulerType::kWarmupStableDecay:
    case SchedulerType::kConstantWithWarmup:
      return 1;
    case SchedulerType::kLinear:
      return std::max(0.0, ratio(run.total_steps - step, run.total_steps - run.warmup_steps));
    case SchedulerType::kCosine:
      return std::max(0.0, cosine(run.progress(step), kwargs.num_cycles.value_or(0.5)));
    case SchedulerType::kCosineWithMinLr:
      return cosine_with_min_lr(config, run.progress(step));
    case SchedulerType::kCosineWithRestarts:
      return cosine_with_restarts(run.progress(step), kwargs.num_cycles.value_or(1));
    case SchedulerType::kPolynomial:
      return polynomial(config, run, step);
    case SchedulerType::kInverseSqrt:
      return inverse_sqrt(config, run, step);
  }
  return 1;
}

}  // namespace

std::int64_t warmup_steps(const TrainConfig& config, std::int64_t total_steps) {
  if (config.warmup_steps > 0) return config.warmup_steps;
  return static_cast<std::int64_t>(std::ceil(static_cast<double>(total_steps) * config.warmup_ratio));
}

double learning_rate_at(const TrainConfig& config, std::int64_t step, std::int64_t total_steps) {
  const Run run{.warmup_steps = warmup_steps(config, total_steps), .total_steps = total_steps};
  return config.learning_rate * factor(config, run, step);
}

}  // namespace dtrun::worker
