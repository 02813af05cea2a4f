// The least work of a step of a schedule, with any kernel: the profile shows it beside the step's time, and
// tests compare it with the memory that kernels really read and write.
#pragma once

#include "worker/device/cuda/schedule/schedule.h"

namespace dtrun::worker::cuda {

// A multiplication with its addition is two operations; only matmuls, convolutions and attention count any.
// Bytes of the GPU's memory, each once, without those that a kernel leaves for another of the same step.
struct StepCost {
  double flops = 0, read = 0, written = 0;
  double bytes() const { return read + written; }
  StepCost& operator+=(const StepCost& other) {
    flops += other.flops, read += other.read, written += other.written;
    return *this;
  }
};

// Attention is causal: a token has scores with itself and earlier tokens, which backward computes again.
// Embeddings count as if each token came once in the microbatch: the most that is read and written.
StepCost cost_of(const Step& step);

}  // namespace dtrun::worker::cuda
