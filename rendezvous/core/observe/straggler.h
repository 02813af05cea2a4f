// Who slows a generation, and why. The accounts that heartbeats bring only grow, and are cut into windows; a
// verdict needs the same rank, or network, ahead in most of the newest ones (slow_rank.h, slow_network.h; for
// programs that tell nothing of their steps kernel_facts.h). A rank that leads one window alone, for long, is
// told of once. Pure. No two clocks are compared.
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

// A window is over when every rank has told of so many more steps, if it tells of any, and this time has
// passed.
inline constexpr std::int64_t kWindowSteps = 20;
inline constexpr Millis kWindow = 2000;
inline constexpr double kSeriousLoss = 0.20;
// Of the newest windows it must have led so many to be named. Once named it stays so until it has led
// fewer than kLedToStay, and serious until the loss is below kStillSerious.
inline constexpr std::size_t kWindowsKept = 4;
inline constexpr int kLedToName = 3;
inline constexpr int kLedToStay = 2;
inline constexpr double kStillSerious = 0.15;
// A rank that holds all up for so many seconds of one window, and not of the next, is told of, at most so
// often.
inline constexpr double kOnceSeconds = 2;
inline constexpr Millis kOnceGap = 60000;

class StragglerWatch {
 public:
  using HostOf = std::function<std::string(int rank)>;

  // Takes the newest facts of a rank of 0..world-1. Returns the verdict if it is another one: of another rank
  // or cause, more or less serious than before, or, without a text, that no rank stands out any more; or one
  // of a rank that slowed the run in one step. kCommunication is no news.
  std::optional<Verdict> take(int rank, int world, const WorkerReport& report, Millis now,
                              const HostOf& host_of);

  // As it stands, with the numbers of the newest window that its rank led; none while no rank stands out.
  const std::optional<Verdict>& verdict() const { return verdict_; }
  // Of the newest window, by rank: ratios_to_usual(). Empty before the first.
  const std::vector<int>& ratios() const { return ratios_; }
  std::int64_t windows() const { return windows_; }  // so far

 private:
  struct Sample {
    std::optional<StepTimes> times;
    std::optional<WorkerUsage> usage;
    std::int64_t step = 0;
    Millis at = 0;
  };
  struct Rank {
    std::optional<Sample> begin, newest;  // of the window
    bool is_through = false;              // its part of the window is over
    double longest = 0;                   // of its own time between two samples
    std::int64_t longest_step = 0;        // that it was in then
  };
  struct Once {
    Straggler straggler;
    double seconds = 0;
    std::int64_t step = 0;
  };

  void take(Rank& one, Sample sample);
  void forget(Rank& one);
  Window window_of(const HostOf& host_of) const;
  void begin_window(Millis now);
  std::optional<Once> once(const std::optional<Straggler>& leader) const;
  std::optional<Verdict> tell_once(const std::string& leader, Millis now, const HostOf& host_of);
  std::optional<Verdict> conclude(std::optional<Straggler> leader, const HostOf& host_of);
  std::optional<Verdict> name(Straggler leader, const HostOf& host_of);
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
  std::optional<Once> once_;  // of the newest window
  std::optional<Millis> told_once_at_;
};

}  // namespace dtrun::rendezvous
