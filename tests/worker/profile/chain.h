// Times that lanes told of a small program.
#pragma once

#include <chrono>
#include <vector>

#include "worker/device/node_clock.h"
#include "worker/model/builder.h"

namespace dtrun::worker {

inline const NodeTime::Clock::time_point kStart{};

inline NodeTime ran(int node, bool backward, int begin, int end) {
  using std::chrono::milliseconds;
  return {.node = node,
          .backward = backward,
          .begin = kStart + milliseconds(begin),
          .end = kStart + milliseconds(end)};
}

// Nodes: 0 a linear layer, 1 a ReLU, 2 the same linear layer again, 3 the logits, 4 the loss.
inline Program chain() {
  ProgramBuilder builder({.shape = {1, 1, 16}, .classes = 4});
  const Value hidden = builder.relu(builder.linear(builder.input(), "a", 16));
  return builder.finish(builder.linear(builder.linear(hidden, "b", 16), "head", 4));
}

inline const std::vector<std::vector<NodeTime>> kTwoLanes{
    {ran(0, false, 0, 10), ran(1, false, 10, 12), ran(2, false, 12, 20), ran(4, true, 20, 24),
     ran(2, true, 24, 44), ran(1, true, 44, 46), ran(0, true, 46, 56)},
    {ran(0, false, 0, 10), ran(1, false, 10, 12), ran(2, false, 12, 20), ran(4, true, 20, 24),
     ran(2, true, 24, 44), ran(1, true, 44, 46), ran(0, true, 46, 66)}};

}  // namespace dtrun::worker
