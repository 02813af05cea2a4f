// The time of one generation by its phases. Every moment belongs to one of them.
#pragma once

#include <chrono>
#include <utility>

#include "proto/core/training.h"

namespace dtrun::worker {

class PhaseClock {
 public:
  using Clock = std::chrono::steady_clock;
  using Phase = Progress::Phase;

  // Enters a phase, and returns to the one before at the end of the scope.
  class Scope {
   public:
    Scope(PhaseClock& clock, Phase phase) : clock_(clock), before_(clock.enter(phase)) {}
    ~Scope() { clock_.enter(before_); }
    Scope(const Scope&) = delete;

   private:
    PhaseClock& clock_;
    const Phase before_;
  };

  // Begins in the phase kLoading.
  explicit PhaseClock(Clock::time_point now = Clock::now()) : since_(now) {}

  // Returns the phase that ends.
  Phase enter(Phase phase, Clock::time_point now = Clock::now()) {
    part_of(times_, phase_) += seconds(now - std::exchange(since_, now));
    return std::exchange(phase_, phase);
  }

  PhaseTimes times(Clock::time_point now = Clock::now()) const {
    PhaseTimes times = times_;
    part_of(times, phase_) += seconds(now - since_);
    return times;
  }

 private:
  static double seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

  Phase phase_ = Phase::kLoading;
  Clock::time_point since_;
  PhaseTimes times_;
};

}  // namespace dtrun::worker
