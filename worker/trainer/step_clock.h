// Where the time of the training loop goes, measured on its own thread (lane 0). Math is forward, backward
// and the optimizer; what is in no part is `other`.
#pragma once

#include <chrono>

namespace dtrun::worker {

class StepClock {
 public:
  enum Part { kMath, kData, kGradients, kParts };
  using Clock = std::chrono::steady_clock;

  // Adds the time until the end of the scope to a part.
  class Scope {
   public:
    Scope(StepClock& clock, Part part) : clock_(clock), part_(part), start_(Clock::now()) {}
    ~Scope() { clock_.spent_[part_] += Clock::now() - start_; }
    Scope(const Scope&) = delete;

   private:
    StepClock& clock_;
    const Part part_;
    const Clock::time_point start_;
  };

  struct Shares {
    double seconds = 0;                         // wall time since the previous lap
    double gradients = 0, data = 0, other = 0;  // of `seconds`, 0..1
  };

  // Ends a lap and starts the next.
  Shares lap() {
    const auto now = Clock::now();
    const std::chrono::duration<double> wall = now - lap_start_;
    auto share = [&](Part part) {
      return std::chrono::duration<double>(spent_[part]).count() / wall.count();
    };
    Shares shares{wall.count(), share(kGradients), share(kData), 0};
    shares.other = 1 - share(kMath) - shares.gradients - shares.data;
    restart(now);
    return shares;
  }
  // Leaves what happened since `begin` out of the lap. REQUIRES: no part was measured in between.
  void leave_out_since(Clock::time_point begin) { lap_start_ += Clock::now() - begin; }
  void restart(Clock::time_point now = Clock::now()) {
    lap_start_ = now;
    for (auto& part : spent_) part = {};
  }

 private:
  Clock::time_point lap_start_ = Clock::now();
  Clock::duration spent_[kParts] = {};
};

}  // namespace dtrun::worker
