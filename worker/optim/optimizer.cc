// SGD and AdamW with PyTorch's formulas: the numbers that a step's loops use, each rounded to fp32 once.
#include "worker/optim/optimizer.h"

#include <cmath>

#include "worker/core/math.h"

namespace dtrun::worker {
namespace {

SgdRule sgd_rule(const TrainConfig& config, double learning_rate) {
  return {.rate = static_cast<float>(learning_rate),
          .momentum = static_cast<float>(config.momentum),
          .weight_decay = static_cast<float>(config.weight_decay),
          .nesterov = config.nesterov,
          .decays_all = !config.decay_weights_only};
}

AdamWRule adamw_rule(const TrainConfig& config, std::int64_t step, double learning_rate) {
  const std::int64_t updates = step + 1;
  const double beta1 = config.adam_beta1, beta2 = config.adam_beta2;
  return {.keep = static_cast<float>(1 - learning_rate * config.weight_decay),
          .step_size = static_cast<float>(learning_rate / (1 - power(beta1, updates))),
          .root_correction = static_cast<float>(std::sqrt(1 - power(beta2, updates))),
          .beta1 = static_cast<float>(beta1),
          .rest1 = static_cast<float>(1 - beta1),
          .beta2 = static_cast<float>(beta2),
          .rest2 = static_cast<float>(1 - beta2),
          .epsilon = static_cast<float>(config.adam_epsilon)};
}

}  // namespace

std::vector<std::string> optimizer_slot_names(const TrainConfig& config) {
  if (config.optim == OptimizerType::kAdamW) return {"exp_avg", "exp_avg_sq"};
  if (static_cast<float>(config.momentum) == 0) return {};
  return {"momentum_buffer"};
}

std::vector<std::string> outer_slot_names(const TrainConfig& config) {
  if (static_cast<float>(config.outer_momentum) == 0) return {};
  return {"outer_momentum_buffer"};
}

std::vector<std::string> slot_names(const TrainConfig& config) {
  if (!config.has_local_replicas()) return optimizer_slot_names(config);
  std::vector<std::string> names = outer_slot_names(config);
  for (int replica = 0; replica < config.local_replicas; ++replica)
    for (const std::string& name : optimizer_slot_names(config))
      names.push_back("replica_" + std::to_string(replica) + "_" + name);
  return names;
}

OuterRule outer_rule(const TrainConfig& config) {
  return {.rate = static_cast<float>(config.outer_learning_rate),
          .momentum = static_cast<float>(config.outer_momentum),
          .replicas = static_cast<float>(config.local_replicas)};
}

UpdateRule update_rule(const TrainConfig& config, std::int64_t step, double learning_rate) {
  UpdateRule rule{.optimizer = sgd_rule(config, learning_rate), .max_norm = config.max_grad_norm};
  if (config.optim == OptimizerType::kAdamW) rule.optimizer = adamw_rule(config, step, learning_rate);
  return rule;
}

}  // namespace dtrun::worker
