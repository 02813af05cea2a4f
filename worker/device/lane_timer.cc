#include "worker/device/lane_timer.h"

#include <algorithm>

#include "worker/schedule/step_kind.h"

namespace dtrun::worker {

int LaneClock::op_of(const schedule::Step& step) {
  const auto [found, is_new] = ops_.try_emplace(&step);
  if (is_new) found->second = timer_->number_of(timed_op(program_, step));
  return found->second;
}

void LaneTimer::start() {
  times_.times.clear();
  start_ = Clock::now();
  on_ = true;
}

int LaneTimer::number_of(const TimedOp& op) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(times_.ops, op);
  const auto number = static_cast<int>(found - times_.ops.begin());
  if (found == times_.ops.end()) times_.ops.push_back(op);
  return number;
}

void LaneTimer::add(const OpTime& time) {
  const std::lock_guard lock(mutex_);
  times_.times.push_back(time);
}

LaneClock LaneTimer::clock_of(const Program& program) {
  const std::lock_guard lock(mutex_);
  times_.streams.emplace_back("lane");
  return {shared_from_this(), program, static_cast<int>(times_.streams.size()) - 1};
}

}  // namespace dtrun::worker
