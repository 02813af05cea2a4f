// A small program's parameters and a state for it, without the model library.
#pragma once

#include "worker/checkpoint/checkpoint.h"

namespace dtrun::worker {

inline Program example_program() {
  Program program;
  program.parameters = {{"conv1.weight", {2, 1, 2, 2}, 0, 8, {}},
                        {"conv1.bias", {2}, 8, 2, {}},
                        {"fc.weight", {3, 2}, 10, 6, {}}};
  program.size = 16;
  return program;
}

inline const Program kProgram = example_program();

// Values that tell step, vector and position apart.
inline TrainState example_state(std::int64_t step) {
  TrainState state;
  state.step = step;
  state.config_json = "{\n  \"output_dir\": \"x\"\n}\n";
  OptimizerSlot mean{"exp_avg", {}}, square{"exp_avg_sq", {}};
  for (int i = 0; i < 16; ++i) {
    state.parameters.push_back(static_cast<float>(step) + static_cast<float>(i) / 16);
    mean.values.push_back(-static_cast<float>(i) - static_cast<float>(step));
    square.values.push_back(static_cast<float>(i * i));
  }
  state.optimizer = {mean, square};
  return state;
}

inline bool same(const TrainState& a, const TrainState& b) {
  if (a.step != b.step || a.parameters != b.parameters || a.config_json != b.config_json) return false;
  if (a.optimizer.size() != b.optimizer.size()) return false;
  for (std::size_t i = 0; i < a.optimizer.size(); ++i) {
    if (a.optimizer[i].name != b.optimizer[i].name || a.optimizer[i].values != b.optimizer[i].values)
      return false;
  }
  return true;
}

}  // namespace dtrun::worker
