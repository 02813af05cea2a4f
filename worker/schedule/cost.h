// The least work of a step of a schedule, on any device and with any kernel: the profile shows it beside the
// step's time, and tests compare it with the memory that kernels really read and write.
#pragma once

#include "worker/schedule/schedule.h"

namespace dtrun::worker {

// A multiplication with its addition is two flops; only matmuls, convolutions and attention count any. Bytes
// of memory, each once, without those that a kernel leaves for another of the same operation.
struct OpCost {
  double flops = 0, read = 0, written = 0;
  double bytes() const { return read + written; }
  OpCost& operator+=(const OpCost& other) {
    flops += other.flops, read += other.read, written += other.written;
    return *this;
  }
  auto operator<=>(const OpCost&) const = default;
};

namespace schedule {

// Attention is causal: a token has scores with itself and earlier tokens, which backward computes again.
// Embeddings count as if each token came once in the microbatch: the most that is read and written.
OpCost cost_of(const Step& step);

}  // namespace schedule
}  // namespace dtrun::worker
