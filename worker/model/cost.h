// The work of a program's nodes, on any device.
#pragma once

#include "worker/model/program.h"

namespace dtrun::worker {

// The least work of an operation, with any kernel. A multiplication with its addition is two flops; only
// matmuls, convolutions and attention count any. Bytes of memory, each once, without those that a kernel
// leaves for another of the same operation.
struct OpCost {
  double flops = 0, read = 0, written = 0;
  double bytes() const { return read + written; }
  OpCost& operator+=(const OpCost& other) {
    flops += other.flops, read += other.read, written += other.written;
    return *this;
  }
};

struct NodeCost {
  OpCost forward, backward;
};

// The cost in fp32 for `samples` samples. Backward of a node whose input needs no gradient computes only the
// gradient of its parameters. Attention is causal: half of its scores are work.
NodeCost cost_of(const Program& program, int node, double samples);

// One name for nodes that do the same work: "Linear 256 -> 768".
std::string describe(const Program& program, int node);

}  // namespace dtrun::worker
