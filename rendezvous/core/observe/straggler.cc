#include "rendezvous/core/observe/straggler.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "proto/core/text.h"
#include "rendezvous/core/observe/slow_network.h"
#include "rendezvous/core/observe/slow_rank.h"

namespace dtrun::rendezvous {
namespace {

WindowPart window_part(int rank, const StepTimes& from, const StepTimes& to) {
  const double steps = static_cast<double>(to.steps - from.steps);
  return {.rank = rank,
          .math = (to.math - from.math) / steps,
          .data = (to.data - from.data) / steps,
          .wait_peers = (to.wait_peers - from.wait_peers) / steps,
          .other = (to.other - from.other) / steps,
          .microbatches = static_cast<double>(to.microbatches - from.microbatches) / steps};
}

void add_waits(const StepTimes& from, const StepTimes& to, WindowPart& part) {
  const double steps = static_cast<double>(to.steps - from.steps);
  for (std::size_t peer = 0; peer < to.wait_for.size(); ++peer) {
    const double wait = (to.wait_for[peer] - from.wait_for[peer]) / steps;
    part.wait_for.push_back(std::isfinite(wait) ? std::max(0.0, wait) : 0);
  }
}

void add_usage(const WorkerUsage& from, const WorkerUsage& to, double seconds, WindowPart& part) {
  const auto each = [seconds](auto begin, auto end) {
    return std::max(0.0, static_cast<double>(end - begin) / seconds);
  };
  part.cpu = each(from.cpu, to.cpu);
  part.cpu_wait = each(from.cpu_wait, to.cpu_wait);
  part.throttled = each(from.throttled, to.throttled);
  part.major_faults = each(from.major_faults, to.major_faults);
  part.read_bytes = each(from.read_bytes, to.read_bytes);
}

// Another host's numbers: not believed if one fell, or is none.
bool goes_on_from(const StepTimes& before, const StepTimes& now) {
  const auto grows = [&](double StepTimes::*part) {
    return std::isfinite(now.*part) && now.*part >= before.*part;
  };
  return now.steps >= before.steps && now.microbatches >= before.microbatches && grows(&StepTimes::math) &&
         grows(&StepTimes::data) && grows(&StepTimes::wait_peers) && grows(&StepTimes::other);
}

}  // namespace

std::optional<Verdict> StragglerWatch::take(int rank, int world, const WorkerReport& report, Millis now,
                                            const HostOf& host_of) {
  if (!report.times || rank < 0 || rank >= world) return std::nullopt;
  ranks_.resize(static_cast<std::size_t>(world));
  Rank& one = ranks_[static_cast<std::size_t>(rank)];
  const StepTimes before = one.newest ? one.newest->times : StepTimes();
  if (!goes_on_from(before, *report.times)) {
    through_ -= one.is_through ? 1 : 0;
    one = {};
    return std::nullopt;
  }
  one.newest = {.times = *report.times, .usage = report.usage, .at = now};
  if (!one.begin) one.begin = one.newest;
  if (!one.is_through && one.newest->times.steps - one.begin->times.steps >= kWindowSteps) {
    one.is_through = true;
    ++through_;
  }
  if (through_ < world || now - window_began_ < kWindow) return std::nullopt;
  const Window window = close_window(host_of);
  window_began_ = now;
  ratios_ = ratios_to_usual(window);
  ++windows_;
  std::optional<Straggler> leader = judge_ranks(window);
  return conclude(leader ? std::move(leader) : judge_network(window), host_of);
}

// The next one begins with the newest samples.
Window StragglerWatch::close_window(const HostOf& host_of) {
  Window window;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    const Sample &begin = *ranks_[rank].begin, &newest = *ranks_[rank].newest;
    WindowPart part = window_part(static_cast<int>(rank), begin.times, newest.times);
    const std::size_t world = ranks_.size();
    if (begin.times.wait_for.size() == world && newest.times.wait_for.size() == world) {
      add_waits(begin.times, newest.times, part);
      part.host = host_of(part.rank);
    }
    if (begin.usage && newest.usage && newest.at > begin.at)
      add_usage(*begin.usage, *newest.usage, static_cast<double>(newest.at - begin.at) / 1000, part);
    window.push_back(std::move(part));
    ranks_[rank] = {.begin = newest, .newest = newest};
  }
  through_ = 0;
  return window;
}

std::ptrdiff_t StragglerWatch::windows_led_by(const std::string& who) const {
  return std::ranges::count(leaders_, who);
}

std::optional<Verdict> StragglerWatch::conclude(std::optional<Straggler> leader, const HostOf& host_of) {
  leaders_.push_back(leader ? leader->who : "");
  if (leaders_.size() > kWindowsKept) leaders_.pop_front();
  const std::string cause = leader ? leader->verdict.cause : "";
  const bool was_so = std::exchange(newest_cause_, cause) == cause;
  const bool named = verdict_ && leader && leader->who == who_;
  if (named && cause != verdict_->cause && !was_so) return std::nullopt;  // one window may deceive
  if (leader && (named || windows_led_by(leader->who) >= kLedToName)) {
    Verdict verdict = std::move(leader->verdict);
    verdict.serious = verdict.loss >= (named && verdict_->serious ? kStillSerious : kSeriousLoss);
    const std::string where = verdict.rank >= 0 ? " on " + host_of(verdict.rank) : "";
    verdict.text =
        leader->who + where + " slows the run by " + decimals(verdict.loss * 100, 0) + " %: " + verdict.text;
    const bool news = !named || verdict.cause != verdict_->cause || verdict.serious != verdict_->serious;
    who_ = leader->who;
    verdict_ = std::move(verdict);
    return news ? verdict_ : std::nullopt;
  }
  if (!verdict_ || windows_led_by(who_) >= kLedToStay) return std::nullopt;
  verdict_.reset();
  return Verdict{.text = {}, .rank = -1, .cause = {}};
}

}  // namespace dtrun::rendezvous
