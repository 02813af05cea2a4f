#include "agent/core/hang.h"

#include <algorithm>
#include <cctype>
#include <string_view>

namespace dtrun::agent {
namespace {

constexpr Millis kLongestInterval = 5000, kShortestInterval = 100;
// A look this much later than planned means that this process, or the machine, stood still.
constexpr Millis kJump = 3000;
// Less than a hundredth of a core counts as idle: a thread that only wakes up now and then does no work.
// gloo's wakes up 100 times a second, which takes a four hundredth.
constexpr Millis kIdleShare = 100;
constexpr Millis kIdleFloor = 10;  // one tick of the kernel's CPU accounts
// Waits are read from memory, which costs next to nothing.
constexpr Millis kWaitInterval = 2000;
// A worker that has been silent, or waits, for as long is worth a word to those who ask.
constexpr Millis kQuiet = 5000;
// People are not told of a silence that a worker is known to break by itself: a step may take minutes.
constexpr Millis kUsualGaps = 10;
// Activity is a share of the time since the last look at it, which is at most this long ago: a moment's work
// after an hour of waiting is activity.
constexpr Millis kRecent = 60000;
// Programs that do nothing but wait read a few bytes now and then: those by which threads wake each other.
constexpr std::int64_t kIdleBytesPerSecond = 1000;

bool worked(Millis cpu_ms, Millis in_ms) {
  return cpu_ms < 0 || cpu_ms > std::max(kIdleFloor, in_ms / kIdleShare);
}

bool moved(std::int64_t bytes, Millis in_ms) {
  return bytes < 0 || bytes > std::max<Millis>(1000, in_ms) * kIdleBytesPerSecond / 1000;
}

}  // namespace

HangSettings hang_settings(Millis heartbeat_timeout, Millis stall_timeout, std::optional<Millis> notice_after,
                           bool builtin, Millis shutdown_timeout) {
  static constexpr Millis kSilence = 300000, kIdle = 600000, kWait = 30000;
  HangSettings settings{.heartbeat_timeout = heartbeat_timeout,
                        .stall_timeout = stall_timeout,
                        .raised_timeout = std::max<Millis>(shutdown_timeout, 1000),
                        .silence_notice = notice_after.value_or(kSilence)};
  if (builtin)
    settings.wait_notice = std::min(notice_after.value_or(kWait), kWait);
  else
    settings.idle_notice = notice_after.value_or(kIdle);
  return settings;
}

Millis HangDetector::interval() const {
  Millis shortest = settings_.wait_notice > 0 ? kWaitInterval : kLongestInterval;
  for (Millis limit : {settings_.heartbeat_timeout, settings_.stall_timeout, settings_.silence_notice,
                       settings_.idle_notice, settings_.wait_notice, settings_.raised_timeout})
    if (limit > 0) shortest = std::min(shortest, limit / 5);
  return std::max(kShortestInterval, shortest);
}

std::vector<HungWorker> HangDetector::look(const std::vector<LifeSigns>& signs, bool held_back, Millis now) {
  const Millis passed = looked_at_ ? now - *looked_at_ : 0;
  looked_at_ = now;
  jumped_ = passed > interval() + kJump;
  watched_ += jumped_ ? interval() : passed;
  std::map<int, Seen> running;
  for (const LifeSigns& one : signs) {
    const auto known = seen_.find(one.local_rank);
    running[one.local_rank] = known != seen_.end() ? known->second
                                                   : Seen{.last = one,
                                                          .beat_at = watched_,
                                                          .active_at = watched_,
                                                          .cpu_mark = one.cpu_ms,
                                                          .moved_at = watched_,
                                                          .recent_at = watched_,
                                                          .recent = one};
  }
  seen_.swap(running);
  for (const LifeSigns& one : signs) update(one, held_back);
  find_ahead();
  return jumped_ ? std::vector<HungWorker>{} : judge();
}

void HangDetector::update(const LifeSigns& signs, bool held_back) {
  Seen& seen = seen_.at(signs.local_rank);
  if (held_back || signs.beat != seen.last.beat) {
    if (seen.last.beat && !held_back) seen.longest_gap = std::max(seen.longest_gap, watched_ - seen.beat_at);
    seen.beat_at = watched_;
  }
  if (held_back || signs.output_bytes != seen.last.output_bytes || signs.processes != seen.last.processes ||
      worked(signs.cpu_ms - seen.cpu_mark, watched_ - seen.active_at)) {
    seen.active_at = watched_;
    seen.cpu_mark = signs.cpu_ms;
  }
  if (signs.raised && !seen.raised_at) seen.raised_at = watched_;
  update_moved(signs, held_back, seen);
  seen.last = signs;
}

void HangDetector::update_moved(const LifeSigns& signs, bool held_back, Seen& seen) const {
  const Millis passed = watched_ - seen.recent_at;
  const bool moves =
      held_back || signs.beat != seen.recent.beat || signs.output_bytes != seen.recent.output_bytes ||
      signs.processes != seen.recent.processes || worked(signs.cpu_ms - seen.recent.cpu_ms, passed) ||
      moved(signs.io_bytes - seen.recent.io_bytes, passed);
  if (moves) seen.moved_at = watched_;
  if (!moves && passed < kRecent) return;
  seen.recent_at = watched_;
  seen.recent = signs;
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

Millis HangDetector::idle_for() const {
  Millis shortest = watched_;
  for (const auto& [local_rank, seen] : seen_) shortest = std::min(shortest, watched_ - seen.moved_at);
  return shortest;
}

std::vector<QuietWorker> HangDetector::quiet() const {
  const auto overdue = [&](Millis time, Millis limit) { return limit > 0 && time >= limit && !jumped_; };
  const auto quiet = [](Millis time, Millis limit) {
    return time > 0 && time >= (limit > 0 ? std::min(limit, kQuiet) : kQuiet);
  };
  const Millis idle = idle_for();
  std::vector<QuietWorker> found;
  for (const auto& [local_rank, seen] : seen_) {
    const Millis waits = seen.last.waits_ms, silent = seen.last.beat ? watched_ - seen.beat_at : 0;
    const Millis usual = std::max(settings_.silence_notice, kUsualGaps * seen.longest_gap);
    const bool tell_silent = settings_.silence_notice > 0 && overdue(silent, usual);
    // A worker that waits for a peer gives heartbeats: one that gives none only stood still within its wait.
    if (!tell_silent && overdue(idle, settings_.idle_notice))
      found.push_back({local_rank, QuietWorker::kIdle, idle, true});
    else if (quiet(silent, settings_.silence_notice))
      found.push_back({local_rank, QuietWorker::kSilent, silent, tell_silent});
    else if (quiet(waits, settings_.wait_notice))
      found.push_back({local_rank, QuietWorker::kWaits, waits, overdue(waits, settings_.wait_notice)});
  }
  return found;
}

// A program may catch the error whose file is there, and go on.
Millis HangDetector::ending_for(const Seen& seen) const {
  if (!seen.raised_at) return 0;
  return watched_ - std::max({*seen.raised_at, seen.active_at, seen.last.beat ? seen.beat_at : 0});
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
  if (hung.empty() && settings_.raised_timeout > 0) {
    for (const auto& [local_rank, seen] : seen_)
      if (const Millis ending = ending_for(seen); ending >= settings_.raised_timeout)
        hung.push_back({.local_rank = local_rank, .silent_ms = ending});
  }
  if (hung.empty() && all_idle) {
    for (const auto& [local_rank, seen] : seen_)
      if (!seen.ahead)
        hung.push_back({.local_rank = local_rank,
                        .silent_ms = watched_ - seen.active_at,
                        .stalled = true,
                        .collectives = seen.last.collectives});
  }
  // The others wait for those that raised an error.
  for (HungWorker& one : hung) one.raised = seen_.at(one.local_rank).raised_at.has_value();
  if (std::ranges::any_of(hung, &HungWorker::raised))
    std::erase_if(hung, [](const HungWorker& one) { return !one.raised; });
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

// The frames are indented; behind them stands "module.Error: message", whose message may have some lines.
// torch puts "[rank1]: " in front of each line.
bool ends_in_traceback(const std::vector<std::string>& stderr_tail) {
  constexpr std::ptrdiff_t kMostOfMessage = 5;
  const auto text_of = [](std::string_view line) {
    const std::size_t end = line.starts_with("[rank") ? line.find("]: ") : line.npos;
    return end == line.npos ? line : line.substr(end + 3);
  };
  const auto is_frame = [&](const std::string& line) { return text_of(line).starts_with("  File \""); };
  const auto frame = std::find_if(stderr_tail.rbegin(), stderr_tail.rend(), is_frame).base();
  if (frame == stderr_tail.begin()) return false;
  const auto error = std::find_if(frame, stderr_tail.end(),
                                  [&](const std::string& line) { return !text_of(line).starts_with(" "); });
  if (error == stderr_tail.end() || stderr_tail.end() - error > kMostOfMessage) return false;
  const std::string_view name = text_of(*error).substr(0, text_of(*error).find(':'));
  return !name.empty() && std::ranges::all_of(name, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '.' || c == '_';
  });
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
