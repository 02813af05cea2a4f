// The work of a program's nodes, on any device.
#pragma once

#include "worker/model/program.h"

namespace dtrun::worker {

// flops: two for each multiplication and its addition in a matrix product or convolution; the other
// operations are bound by memory and count none. bytes: fp32 bytes that must be read and written at least
// once.
struct Cost {
  double flops = 0, bytes = 0;
  Cost& operator+=(const Cost& other) {
    flops += other.flops, bytes += other.bytes;
    return *this;
  }
};

struct NodeCost {
  Cost forward, backward;
};

// The cost for `samples` samples. Backward of a node whose input needs no gradient computes only the gradient
// of its parameters. Attention is causal: half of its scores are work.
NodeCost cost_of(const Program& program, int node, double samples);

// One name for nodes that do the same work: "Linear 256 -> 768".
std::string describe(const Program& program, int node);

}  // namespace dtrun::worker
