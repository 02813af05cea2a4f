// How much work the nodes of a program are, whatever device does it.
#pragma once

#include "worker/model/program.h"

namespace dtrun::worker {

// Of matrix products (and convolutions as such) a multiplication with its addition is two operations; all
// else counts none: it is bound by memory. Bytes of fp32 that must be read and written at least once.
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

// Of `samples` samples. Backward of a node whose input needs no gradient makes that of its parameters alone.
// Attention is causal: half of its scores are work.
NodeCost cost_of(const Program& program, int node, double samples);

// One name for nodes that do the same work: "Linear 256 -> 768".
std::string describe(const Program& program, int node);

}  // namespace dtrun::worker
