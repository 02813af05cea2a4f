// The message about diverged training: names the place where it began, as far as that can be found.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "worker/base/error.h"
#include "worker/model/program.h"

namespace dtrun::worker {

inline constexpr char kAgainstDivergence[] =
    "A lower train.learning_rate or a train.max_grad_norm may keep it from diverging.";

// A step that was not applied.
struct Divergence {
  const Program& program;
  std::int64_t step;                 // from 1
  double loss;                       // of the whole step
  std::vector<float> parameters;     // before the step; [program.size], as the gradient
  std::span<const float> gradient;   // of the whole step
  std::optional<std::int64_t> leaf;  // the first leaf whose own loss or gradient is not finite
  std::int64_t leaves;
};

WorkerError diverged(const Divergence& divergence);

}  // namespace dtrun::worker
