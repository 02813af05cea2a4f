// How much work a step of a schedule is, whatever kernel does it: the least that it can cost, beside which
// its time is shown, and what tests compare with what kernels really read and write.
#pragma once

#include "worker/device/cuda/schedule/schedule.h"

namespace dtrun::worker::cuda {

// A multiplication with its addition is two operations; only products, convolutions and attention count any.
// Bytes of the GPU's memory, each once; what a kernel leaves for another of the same step is not in it.
struct StepCost {
  double flops = 0, read = 0, written = 0;
  double bytes() const { return read + written; }
  StepCost& operator+=(const StepCost& other) {
    flops += other.flops, read += other.read, written += other.written;
    return *this;
  }
};

// Attention is causal: a token's scores are with those before it and itself. Its backward computes them
// again. Of embeddings as if each token came once in the microbatch: what is read and written at most.
StepCost cost_of(const Step& step);

}  // namespace dtrun::worker::cuda
