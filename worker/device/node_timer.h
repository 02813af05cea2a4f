// Times the nodes of a program on a CPU's lanes, by the clock of the threads that run them.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <utility>

#include "worker/device/op_timer.h"
#include "worker/model/program.h"

namespace dtrun::worker {

class NodeTimer;

// Belongs to a lane, on its thread. Reads no clock unless the timer is on.
class NodeClock {
 public:
  NodeClock() = default;  // never times
  NodeClock(std::shared_ptr<NodeTimer> timer, int lane) : timer_(std::move(timer)), lane_(lane) {}

  template <typename Work>
  void time(int node, bool backward, const Work& work) const;

 private:
  std::shared_ptr<NodeTimer> timer_;  // lanes may outlive their device
  int lane_ = 0;
};

// A stream is a lane, and an operation a node's forward or backward for a whole microbatch.
class NodeTimer final : public OpTimer, public std::enable_shared_from_this<NodeTimer> {
 public:
  void start() override;
  // Lanes are done with what they were called for.
  void read() override {}
  void stop() override { on_ = false; }
  const OpTimes& times() const override { return times_; }

  // For a new lane. All lanes run the same program. Any thread.
  NodeClock clock_of(const Program& program, int capacity);

 private:
  friend class NodeClock;
  double now() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  void add(const OpTime& time);

  using Clock = std::chrono::steady_clock;
  std::atomic<bool> on_{false};
  Clock::time_point start_;
  std::mutex mutex_;  // guards times_ while lanes run
  OpTimes times_;
};

template <typename Work>
void NodeClock::time(int node, bool backward, const Work& work) const {
  if (timer_ == nullptr || !timer_->on_.load(std::memory_order_relaxed)) return work();
  const double begin = timer_->now();
  work();
  timer_->add({.op = 2 * node + (backward ? 1 : 0), .stream = lane_, .begin = begin, .end = timer_->now()});
}

}  // namespace dtrun::worker
