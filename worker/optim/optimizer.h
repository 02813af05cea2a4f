// Optimizers and learning-rate schedules: rules without a state of their own. Every replica applies the same
// update to the same values, element by element, so its result is the same bits everywhere.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "worker/config/config.h"

namespace dtrun::worker {

// State vectors of an optimizer, each as long as the parameters; saved in optimizer.safetensors by name.
struct OptimizerSlot {
  std::string name;           // "momentum_buffer"; "exp_avg", "exp_avg_sq"
  std::vector<float> values;  // flat, zero before the first step
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // Its state before the first step, for `size` parameters.
  virtual std::vector<OptimizerSlot> zero_slots(std::size_t size) const = 0;
  // One update. step counts from 0 (AdamW's bias correction uses step+1). gradient: the mean gradient.
  // `slots`: what zero_slots() gave, as the last update left it.
  virtual void apply(std::int64_t step, double learning_rate, std::span<const float> gradient,
                     std::span<float> parameters, std::span<OptimizerSlot> slots) const = 0;
};

// sgd: torch.optim.SGD (momentum without dampening, coupled weight decay). adamw: torch.optim.AdamW.
std::unique_ptr<Optimizer> make_optimizer(const TrainConfig& config);

// The factor schedules of Hugging Face transformers (get_scheduler), times config.learning_rate, for `step`
// counted from 0 out of total_steps.
double learning_rate_at(const TrainConfig& config, std::int64_t step, std::int64_t total_steps);

// Euclidean norm, summed in fp64 in an order that only the length decides: the same on every replica.
double gradient_norm(std::span<const float> gradient);

}  // namespace dtrun::worker
