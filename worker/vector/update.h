// One optimizer step as data, from which an Arithmetic turns a step's sum into new parameters.
#pragma once

#include <cstddef>
#include <span>
#include <variant>
#include <vector>

#include "worker/core/vector_range.h"

namespace dtrun::worker {

// A step's vector is [statistics | gradient]: the statistics are summed in the same tree as the gradient and
// cost no message of their own. They are sums over targets: the loss, the hits, the number of targets; the
// rest is zero and keeps the gradient 64-byte aligned.
inline constexpr std::size_t kStatisticsFloats = 16;

// torch.optim.SGD: momentum without dampening, coupled weight decay. Slots: none, or with momentum its
// buffer.
struct SgdRule {
  float rate = 0, momentum = 0, weight_decay = 0;
  bool nesterov = false;   // with momentum only
  bool decays_all = true;  // or UpdatedVectors::decaying alone
};

// torch.optim.AdamW; values that depend on the step are computed already. Slots: the mean of the gradient,
// and of its square.
struct AdamWRule {
  float keep = 1;             // factor of an element that decays, for the weight decay
  float step_size = 0;        // includes the mean's bias correction
  float root_correction = 1;  // bias correction of the mean square's root
  float beta1 = 0, rest1 = 1, beta2 = 0, rest2 = 1;
  float epsilon = 0;
};

struct UpdateRule {
  std::variant<SgdRule, AdamWRule> optimizer;
  double max_norm = 0;       // a mean gradient with a larger norm is scaled to it; 0: no clipping
  bool norm_wanted = false;  // also without clipping
  bool finite_only = false;  // if loss or norm are not finite, the vectors stay as they are
};

// The outer step of local SGD and DiLoCo: SGD with Nesterov's momentum on the difference between where
// replicas began and the mean of where they are. A rate of 1 without momentum is that mean. Slots: none, or
// with momentum its buffer.
struct OuterRule {
  float rate = 1, momentum = 0;
  float replicas = 1;  // in the sum
};

// Of a batch norm: [means | variances] of its channels in the flat vector, from `begin` on. The sum has there
// those over the step's targets of the means of (x - c) and of (x - c)^2, with c the running mean.
struct RunningStatistics {
  std::size_t begin = 0, channels = 0;
  float values = 1;  // of a channel for each target
  float momentum = 0;
};

// The vectors that an update changes: device memory, `size` floats each.
struct UpdatedVectors {
  std::size_t size = 0;
  float* parameters = nullptr;
  std::vector<float*> slots;  // those of the rule's optimizer, zero before the first step
  // The elements that AdamW's weight decay shrinks, and SGD's if it is told so: host memory, ascending, none
  // overlaps another.
  std::span<const VectorRange> decaying = {};
  // The first floats are no optimizer's, and no part of the norm, but these statistics'.
  std::size_t running = 0;
  std::span<const RunningStatistics> statistics = {};
};

// Sums over the step's targets: one a sample, or one a token.
struct StepStats {
  double loss = 0, correct = 0, targets = 0;
  StepStats& operator+=(const StepStats& other) {
    loss += other.loss, correct += other.correct, targets += other.targets;
    return *this;
  }
};

struct StepResult {
  StepStats stats;
  double norm = 0;      // of the mean gradient before clipping; 0 if not wanted
  bool applied = true;  // false: refused by UpdateRule::finite_only; the mean gradient is in the sum's place
};

}  // namespace dtrun::worker
