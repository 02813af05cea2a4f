// The parts of the training loop's time, measured on its own thread; what all lanes do at once counts as long
// as the slowest of them needs. Math is forward, backward and the optimizer; time in no part is `other`.
#pragma once

#include <chrono>
#include <cstdint>

#include "proto/core/training.h"

namespace dtrun::worker {

template <class C>
class StepClockOf {
 public:
  enum Part { kMath, kData, kGradients, kParts };
  using Clock = C;
  using Time = typename Clock::time_point;
  using Duration = typename Clock::duration;

  // Adds the time until the end of the scope to a part.
  class Scope {
   public:
    Scope(StepClockOf& clock, Part part) : clock_(clock), part_(part), start_(Clock::now()) {}
    ~Scope() { clock_.spent_[part_] += Clock::now() - start_; }
    Scope(const Scope&) = delete;

   private:
    StepClockOf& clock_;
    const Part part_;
    const Time start_;
  };

  // One lane's part of a step.
  struct LaneTime {
    Duration math{}, data{};
    Duration total() const { return math + data; }
  };

  struct Shares {
    double seconds = 0;                                   // wall time
    double math = 0, gradients = 0, data = 0, other = 0;  // of `seconds`, 0..1
  };

  void add(const LaneTime& slowest, std::int64_t microbatches) {
    spent_[kMath] += slowest.math;
    spent_[kData] += slowest.data;
    microbatches_ += microbatches;
  }

  // Ends a lap and starts the next.
  Shares lap() {
    const auto now = Clock::now();
    const Duration wall = now - lap_start_;
    const Shares shares = shares_of(wall, spent_);
    whole_ += wall;
    for (int part = 0; part < kParts; ++part) whole_spent_[part] += spent_[part];
    restart(now);
    return shares;
  }
  // The shares over all laps that have ended.
  Shares whole() const { return shares_of(whole_, whole_spent_); }
  // Of all laps and the one that runs: only grows. REQUIRES: nothing is still to be left out of that.
  StepTimes times(std::int64_t steps) const {
    StepTimes times{.steps = steps,
                    .math = seconds(whole_spent_[kMath] + spent_[kMath]),
                    .data = seconds(whole_spent_[kData] + spent_[kData]),
                    .wait_peers = seconds(whole_spent_[kGradients] + spent_[kGradients]),
                    .microbatches = microbatches_};
    times.other = seconds(whole_ + (Clock::now() - lap_start_)) - times.math - times.data - times.wait_peers;
    return times;
  }
  // Leaves the time since `begin` out of the lap. REQUIRES: no part was measured in between.
  void leave_out_since(Time begin) { lap_start_ += Clock::now() - begin; }
  void restart(Time now = Clock::now()) {
    lap_start_ = now;
    for (auto& part : spent_) part = {};
  }

 private:
  static double seconds(Duration time) { return std::chrono::duration<double>(time).count(); }
  static Shares shares_of(Duration wall, const Duration (&spent)[kParts]) {
    if (wall <= Duration::zero()) return {};
    const auto share = [&](Part part) { return seconds(spent[part]) / seconds(wall); };
    const double math = share(kMath), gradients = share(kGradients), data = share(kData);
    return {seconds(wall), math, gradients, data, 1 - math - gradients - data};
  }

  Time lap_start_ = Clock::now();
  Duration spent_[kParts] = {};
  Duration whole_ = {}, whole_spent_[kParts] = {};
  std::int64_t microbatches_ = 0;
};
using StepClock = StepClockOf<std::chrono::steady_clock>;

}  // namespace dtrun::worker
