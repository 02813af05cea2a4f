#include "agent/core/hang.h"

#include <algorithm>

namespace dtrun::agent {
namespace {

constexpr Millis kLongestInterval = 5000, kShortestInterval = 100;
// A look this much later than planned means that this process, or the machine, stood still.
constexpr Millis kJump = 3000;
// Less than a hundredth of a core counts as idle: a thread that only wakes up now and then does no work.
// gloo's wakes up 100 times a second, which takes a four hundredth.
constexpr Millis kIdleShare = 100;
constexpr Millis kIdleFloor = 10;  // one tick of the kernel's CPU accounts

bool worked(Millis cpu_ms, Millis in_ms) {
  return cpu_ms < 0 || cpu_ms > std::max(kIdleFloor, in_ms / kIdleShare);
}

}  // namespace

Millis HangDetector::interval() const {
  Millis shortest = kLongestInterval * 5;
  for (Millis timeout : {settings_.heartbeat_timeout, settings_.stall_timeout}) {
    if (timeout > 0) shortest = std::min(shortest, timeout);
  }
  return std::max(kShortestInterval, shortest / 5);
}

std::vector<HungWorker> HangDetector::look(const std::vector<LifeSigns>& signs, bool held_back, Millis now) {
  const Millis passed = looked_at_ ? now - *looked_at_ : 0;
  looked_at_ = now;
  const bool jumped = passed > interval() + kJump;
  watched_ += jumped ? interval() : passed;
  std::map<int, Seen> running;
  for (const LifeSigns& one : signs) {
    const auto known = seen_.find(one.local_rank);
    running[one.local_rank] =
        known != seen_.end()
            ? known->second
            : Seen{.last = one, .beat_at = watched_, .active_at = watched_, .cpu_mark = one.cpu_ms};
  }
  seen_.swap(running);
  for (const LifeSigns& one : signs) update(one, held_back);
  find_ahead();
  return jumped ? std::vector<HungWorker>{} : judge();
}

void HangDetector::update(const LifeSigns& signs, bool held_back) {
  Seen& seen = seen_.at(signs.local_rank);
  if (held_back || signs.beat != seen.last.beat) seen.beat_at = watched_;
  if (held_back || signs.output_bytes != seen.last.output_bytes || signs.processes != seen.last.processes ||
      worked(signs.cpu_ms - seen.cpu_mark, watched_ - seen.active_at)) {
    seen.active_at = watched_;
    seen.cpu_mark = signs.cpu_ms;
  }
  seen.last = signs;
}

void HangDetector::find_ahead() {
  std::optional<std::uint64_t> fewest;
  for (const auto& [local_rank, seen] : seen_) {
    const auto& begun = seen.last.collectives;
    if (begun) fewest = std::min(fewest.value_or(*begun), *begun);
  }
  for (auto& [local_rank, seen] : seen_) {
    seen.ahead = seen.last.collectives > fewest;
    if (seen.ahead) seen.beat_at = watched_;
  }
}

void HangDetector::waits_for_peers(int local_rank) {
  const auto seen = seen_.find(local_rank);
  if (seen != seen_.end()) seen->second.beat_at = seen->second.active_at = watched_;
}

std::vector<HungWorker> HangDetector::judge() const {
  std::vector<HungWorker> hung;
  int quiet = 0;  // workers that gave heartbeats once, and none of late
  bool all_idle = settings_.stall_timeout > 0 && !seen_.empty();
  for (const auto& [local_rank, seen] : seen_) {
    const Millis silent = watched_ - seen.beat_at;
    if (settings_.heartbeat_timeout > 0 && seen.last.beat && silent >= settings_.heartbeat_timeout) {
      hung.push_back({.local_rank = local_rank,
                      .silent_ms = silent,
                      .stalled = false,
                      .collectives = seen.last.collectives});
    }
    if (seen.last.beat && 2 * silent >= settings_.heartbeat_timeout) ++quiet;
    all_idle = all_idle && watched_ - seen.active_at >= settings_.stall_timeout;
  }
  for (HungWorker& one : hung) one.alone = quiet == 1;
  if (hung.empty() && all_idle) {
    for (const auto& [local_rank, seen] : seen_)
      if (!seen.ahead)
        hung.push_back({.local_rank = local_rank,
                        .silent_ms = watched_ - seen.active_at,
                        .stalled = true,
                        .collectives = seen.last.collectives});
  }
  std::stable_sort(hung.begin(), hung.end(),
                   [](const HungWorker& a, const HungWorker& b) { return a.silent_ms > b.silent_ms; });
  return hung;
}

std::optional<std::uint64_t> collectives_of(const std::vector<HungWorker>& hung) {
  const bool all = !hung.empty() && std::ranges::all_of(hung, [](const HungWorker& one) {
    return one.collectives.has_value();
  });
  return all ? hung.front().collectives : std::nullopt;
}

bool wait_for_another_node(std::uint64_t mine, const std::vector<std::optional<std::uint64_t>>& nodes) {
  return std::ranges::any_of(nodes, [&](const auto& begun) { return !begun || *begun < mine; });
}

std::vector<int> at_fault(const std::map<int, Activity>& hung) {
  const auto waits = [](Activity activity) {
    return activity == Activity::kWaits || activity == Activity::kUnseen;
  };
  std::vector<int> busy, waiting;
  for (const auto& [local_rank, activity] : hung) {
    if (activity != Activity::kWaitsForPeers) (waits(activity) ? waiting : busy).push_back(local_rank);
  }
  return busy.empty() ? waiting : busy;
}

}  // namespace dtrun::agent
