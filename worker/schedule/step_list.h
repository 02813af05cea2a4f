// The steps of a schedule under construction.
#pragma once

#include <utility>
#include <vector>

#include "worker/schedule/schedule.h"

namespace dtrun::worker::schedule {

class StepList {
 public:
  // `abilities` must outlive this.
  explicit StepList(const Abilities& abilities) : abilities_(abilities) {}

  // Steps that are added from now on belong to this node's forward, or its backward.
  void begin(int node, bool backward, bool again = false) {
    node_ = node, backward_ = backward, again_ = again;
  }
  int node() const { return node_; }

  // Leaves out extents without a place or bytes.
  void add(const Work& work, std::vector<ByteRange> reads, std::vector<ByteRange> writes, int stream = 0) {
    const auto nothing = [](const ByteRange& extent) { return !extent.place || extent.bytes == 0; };
    std::erase_if(reads, nothing);
    std::erase_if(writes, nothing);
    steps_.push_back({.work = work,
                      .node = node_,
                      .backward = backward_,
                      .again = again_,
                      .reads = std::move(reads),
                      .writes = std::move(writes),
                      .stream = stream,
                      .after = {}});
  }
  // Moves the steps to `to`, in their order.
  void finish(std::vector<Step>& to) {
    to = std::exchange(steps_, {});
    order(to, ready_stream() + 1);
  }

  int ready_stream() const { return 1 + abilities_.side_streams; }
  // A stream for work that no step waits for soon: each of the side streams in turn.
  int side_stream() {
    if (abilities_.side_streams == 0) return 0;
    side_ = side_ % abilities_.side_streams + 1;
    return side_;
  }

 private:
  const Abilities& abilities_;
  std::vector<Step> steps_;
  int node_ = 0;
  bool backward_ = false, again_ = false;
  int side_ = 0;
};

}  // namespace dtrun::worker::schedule
