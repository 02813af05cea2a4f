// Optimizers: a step's update as data, which the device carries out
// (Arithmetic::update).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "worker/config/config.h"
#include "worker/vector/update.h"

namespace dtrun::worker {

// State vectors of an optimizer on the host, each as long as the parameters; saved in optimizer.safetensors
// by name.
struct OptimizerSlot {
  std::string name;           // "momentum_buffer"; "exp_avg", "exp_avg_sq"
  std::vector<float> values;  // flat, zero before the first step
};

// The names of config.optim's state vectors, in the order of UpdatedVectors::slots.
std::vector<std::string> optimizer_slot_names(const TrainConfig& config);
// The same for OuterRule.
std::vector<std::string> outer_slot_names(const TrainConfig& config);
// The names of all vectors that a run goes on with besides the parameters: those of config.optim, or with
// local replicas those of the outer step, and then each replica's.
std::vector<std::string> slot_names(const TrainConfig& config);

OuterRule outer_rule(const TrainConfig& config);

// One update of config.optim, clipped to config.max_grad_norm. step counts from 0 (AdamW's bias correction
// uses step + 1).
UpdateRule update_rule(const TrainConfig& config, std::int64_t step, double learning_rate);

}  // namespace dtrun::worker
