#include "worker/device/node_timer.h"

#include <algorithm>

#include "worker/model/cost.h"

namespace dtrun::worker {
namespace {

TimedOp op_of(const Program& program, int node, bool backward, double samples) {
  const NodeCost cost = cost_of(program, node, samples);
  return {.kind = {describe(program, node), backward ? "backward" : "forward"},
          .node = node,
          .cost = backward ? cost.backward : cost.forward};
}

// The loss, which a lane computes in one with the linear layer that makes the logits.
TimedOp loss_of(const Program& program, double samples) {
  const auto loss = static_cast<int>(program.nodes.size()) - 1;
  const auto made = std::ranges::find(program.nodes, program.nodes.back().in[0], &Node::out);
  const auto classifier = static_cast<int>(made - program.nodes.begin());
  TimedOp op{
      .kind = {describe(program, classifier) + " + loss", "forward, backward"}, .node = loss, .cost = {}};
  for (const int node : {classifier, loss}) {
    const NodeCost cost = cost_of(program, node, samples);
    op.cost += cost.forward;
    op.cost += cost.backward;
  }
  return op;
}

}  // namespace

void NodeTimer::start() {
  times_.times.clear();
  start_ = Clock::now();
  on_ = true;
}

void NodeTimer::add(const OpTime& time) {
  const std::lock_guard lock(mutex_);
  times_.times.push_back(time);
}

NodeClock NodeTimer::clock_of(const Program& program, int capacity) {
  const std::lock_guard lock(mutex_);
  if (times_.ops.empty()) {
    for (int node = 0; node < static_cast<int>(program.nodes.size()); ++node)
      for (const bool backward : {false, true})
        times_.ops.push_back(op_of(program, node, backward, capacity));
    times_.ops.back() = loss_of(program, capacity);
  }
  times_.streams.emplace_back("lane");
  return {shared_from_this(), static_cast<int>(times_.streams.size()) - 1};
}

}  // namespace dtrun::worker
