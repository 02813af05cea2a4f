// The times of a program's nodes, for worker/profile/.
#pragma once

#include <chrono>
#include <vector>

namespace dtrun::worker {

struct NodeTime {
  using Clock = std::chrono::steady_clock;
  int node = 0;
  bool backward = false;
  Clock::time_point begin, end;
};

// Belongs to a lane, on its thread. Reads no clock unless times are recorded.
class NodeClock {
 public:
  // Makes time() add to `times`; nullptr ends that.
  void record(std::vector<NodeTime>* times) { times_ = times; }

  template <typename Work>
  void time(int node, bool backward, const Work& work) const {
    if (times_ == nullptr) return work();
    NodeTime time{.node = node, .backward = backward, .begin = NodeTime::Clock::now(), .end = {}};
    work();
    time.end = NodeTime::Clock::now();
    times_->push_back(time);
  }

 private:
  std::vector<NodeTime>* times_ = nullptr;
};

}  // namespace dtrun::worker
