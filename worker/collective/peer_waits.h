// For each peer, how long this rank had nothing left to do but to wait for its messages: which network is
// slow. Peers are waited for in an order that changes with every step, so that it does not matter who is
// waited for first.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

#include "worker/collective/process_group.h"

namespace dtrun::worker {

class PeerWaits {
 public:
  using Clock = std::chrono::steady_clock;

  explicit PeerWaits(int world) : waits_(static_cast<std::size_t>(world)) {}

  // Between the two nothing is left to do. Called by one thread.
  void begin() { since_ = Clock::now().time_since_epoch().count(); }
  void end() {
    since_ = kBusy;
    first_ = (first_ + 1) % static_cast<int>(waits_.size());
  }
  // Waits for the messages, and counts the time. Any thread.
  void wait(Work& messages) {
    messages.wait_from(first_, [this](int peer, Clock::time_point from, Clock::time_point to) {
      const Clock::rep since = since_;
      if (since == kBusy) return;
      const Clock::rep begin = std::max(from.time_since_epoch().count(), since);
      waits_[static_cast<std::size_t>(peer)] +=
          std::max<Clock::rep>(0, to.time_since_epoch().count() - begin);
    });
  }
  // By rank. Any thread.
  std::vector<double> seconds() const {
    std::vector<double> seconds;
    for (const std::atomic<Clock::rep>& wait : waits_)
      seconds.push_back(std::chrono::duration<double>(Clock::duration(wait)).count());
    return seconds;
  }

 private:
  static constexpr Clock::rep kBusy = 0;

  std::vector<std::atomic<Clock::rep>> waits_;
  std::atomic<Clock::rep> since_{kBusy};
  std::atomic<int> first_{0};
};

}  // namespace dtrun::worker
