// Which rank slows a generation, and by what. All ranks end a step together, so step times tell nothing. A
// rank's own time does: math, data and other, without the wait for peers. The accounts that heartbeats bring
// only grow, and are cut into windows. Pure. No two clocks are compared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/core/messages.h"

namespace dtrun::rendezvous {

// A window is over when every rank has told of so many more steps and this time has passed.
inline constexpr std::int64_t kWindowSteps = 20;
inline constexpr Millis kWindow = 2000;
// A rank is slow in a window if its own time is longer than this many times what is usual for its part of the
// work, which is the median of all ranks. It is named while it was slow in so many of the newest windows.
inline constexpr double kSlow = 1.2;
inline constexpr std::size_t kWindowsKept = 4;
inline constexpr std::ptrdiff_t kSlowToName = 3;
// Of a window in which nothing is usual.
inline constexpr int kUnknownRatio = -1;

class StragglerWatch {
 public:
  using HostOf = std::function<std::string(int rank)>;

  // Takes the newest times of a rank of 0..world-1. Returns the verdict if it is another one: of another rank
  // or cause, or, without a text, that no rank is slow any more.
  std::optional<Verdict> take(int rank, int world, const StepTimes& times, const HostOf& host_of, Millis now);

  // As it stands; none while no rank is slow.
  const std::optional<Verdict>& verdict() const { return verdict_; }
  // Of the newest window, by rank: its own time by what is usual for its part of the work, in thousandths, or
  // kUnknownRatio. Empty before the first.
  const std::vector<int>& ratios() const { return ratios_; }
  std::int64_t windows() const { return windows_; }  // so far

 private:
  struct Rank {
    std::optional<StepTimes> begin, newest;  // of the window
    bool is_through = false;                 // its part of the window is over
  };
  // Seconds per step.
  struct Part {
    double math = 0, data = 0, other = 0;

    double sum() const { return math + data + other; }
  };
  // One rank in one window.
  struct Judged {
    Part excess;       // over what is usual
    double ratio = 0;  // own time by what is usual; 0: not known
    double loss = 0;   // the excess as a share of a step

    bool is_slow() const { return ratio > kSlow; }
  };

  static std::vector<Judged> judge(const std::vector<Rank>& ranks);
  std::ptrdiff_t slow_windows(std::size_t rank) const;
  std::optional<std::size_t> slow_rank() const;
  Verdict name(std::size_t rank, const HostOf& host_of) const;

  std::vector<Rank> ranks_;
  int through_ = 0;
  Millis window_began_ = 0;
  std::deque<std::vector<Judged>> kept_;  // the newest windows, by rank
  std::vector<int> ratios_;
  std::int64_t windows_ = 0;
  std::optional<Verdict> verdict_;
};

}  // namespace dtrun::rendezvous
