// Who slows a generation, and why. The accounts that heartbeats bring only grow, and are cut into windows; a
// verdict needs the same rank, or network, ahead in most of the newest ones (slow_rank.h, slow_network.h).
// Pure. No two clocks are compared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/core/messages.h"
#include "rendezvous/core/observe/window.h"

namespace dtrun::rendezvous {

// A window is over when every rank has told of so many more steps, and this time has passed.
inline constexpr std::int64_t kWindowSteps = 20;
inline constexpr Millis kWindow = 2000;
inline constexpr double kSeriousLoss = 0.20;
// Of the newest windows it must have led so many to be named. Once named it stays so until it has led
// fewer than kLedToStay, and serious until the loss is below kStillSerious.
inline constexpr std::size_t kWindowsKept = 4;
inline constexpr int kLedToName = 3;
inline constexpr int kLedToStay = 2;
inline constexpr double kStillSerious = 0.15;

class StragglerWatch {
 public:
  using HostOf = std::function<std::string(int rank)>;

  // Takes the newest facts of a rank of 0..world-1. Returns the verdict if it is another one: of another rank
  // or cause, more or less serious than before, or, without a text, that no rank stands out any more.
  std::optional<Verdict> take(int rank, int world, const WorkerReport& report, Millis now,
                              const HostOf& host_of);

  // As it stands, with the numbers of the newest window that its rank led; none while no rank stands out.
  const std::optional<Verdict>& verdict() const { return verdict_; }
  // Of the newest window, by rank: ratios_to_usual(). Empty before the first.
  const std::vector<int>& ratios() const { return ratios_; }
  std::int64_t windows() const { return windows_; }  // so far

 private:
  struct Sample {
    StepTimes times;
    std::optional<WorkerUsage> usage;
    Millis at = 0;
  };
  struct Rank {
    std::optional<Sample> begin, newest;  // of the window
    bool is_through = false;              // has told of kWindowSteps
  };

  Window close_window(const HostOf& host_of);
  std::optional<Verdict> conclude(std::optional<Straggler> leader, const HostOf& host_of);
  std::ptrdiff_t windows_led_by(const std::string& who) const;

  std::vector<Rank> ranks_;
  int through_ = 0;
  Millis window_began_ = 0;
  std::deque<std::string> leaders_;  // of the newest windows; empty: none
  std::vector<int> ratios_;
  std::int64_t windows_ = 0;
  std::string newest_cause_;  // of the newest window's leader
  std::string who_;           // that verdict_ names
  std::optional<Verdict> verdict_;
};

}  // namespace dtrun::rendezvous
