// Times the steps of a CPU's lanes, by the clock of the threads that run them.
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "worker/device/op_timer.h"
#include "worker/model/program.h"
#include "worker/schedule/schedule.h"

namespace dtrun::worker {

class LaneTimer;

// Belongs to a lane, on its thread. Reads no clock unless the timer is on.
class LaneClock {
 public:
  LaneClock() = default;  // never times
  LaneClock(std::shared_ptr<LaneTimer> timer, const Program& program, int lane)
      : timer_(std::move(timer)), program_(program), lane_(lane) {}

  // REQUIRES: the step stays where it is as long as the clock is used.
  template <typename Work>
  void time(const schedule::Step& step, const Work& work);

 private:
  int op_of(const schedule::Step& step);

  std::shared_ptr<LaneTimer> timer_;  // lanes may outlive their device
  Program program_;
  int lane_ = 0;
  std::map<const schedule::Step*, int> ops_;  // of the steps timed so far: indices into OpTimes::ops
};

// A stream is a lane.
class LaneTimer final : public OpTimer, public std::enable_shared_from_this<LaneTimer> {
 public:
  void start() override;
  // Lanes are done with what they were called for.
  void read() override {}
  void stop() override { on_ = false; }
  const OpTimes& times() const override { return times_; }

  // For a new lane. Any thread.
  LaneClock clock_of(const Program& program);

 private:
  friend class LaneClock;
  double now() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  int number_of(const TimedOp& op);
  void add(const OpTime& time);

  using Clock = std::chrono::steady_clock;
  std::atomic<bool> on_{false};
  Clock::time_point start_;
  std::mutex mutex_;  // guards times_ while lanes run
  OpTimes times_;
};

template <typename Work>
void LaneClock::time(const schedule::Step& step, const Work& work) {
  if (timer_ == nullptr || !timer_->on_.load(std::memory_order_relaxed) || !is_work(step)) return work();
  const int op = op_of(step);
  const double begin = timer_->now();
  work();
  timer_->add({.op = op, .stream = lane_, .begin = begin, .end = timer_->now()});
}

}  // namespace dtrun::worker
