#include "rendezvous/core/observe/straggler.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "proto/core/text.h"
#include "rendezvous/core/observe/kernel_facts.h"
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
  part.stopped = each(from.stopped, to.stopped);
  part.neighbour = to.neighbour;
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

double own_time(const StepTimes& times) { return times.math + times.data + times.other; }

std::string subject(const Straggler& one, const StragglerWatch::HostOf& host_of) {
  return one.who + (one.verdict.rank >= 0 ? " on " + host_of(one.verdict.rank) : "");
}

std::optional<Straggler> judge_steps(const Window& window) {
  if (auto rank = judge_ranks(window)) return rank;
  if (auto network = judge_network(window)) return network;
  return judge_communication(window);
}

}  // namespace

std::optional<Verdict> StragglerWatch::take(int rank, int world, const WorkerReport& report, Millis now,
                                            const HostOf& host_of) {
  if ((!report.times && !report.usage) || rank < 0 || rank >= world) return std::nullopt;
  ranks_.resize(static_cast<std::size_t>(world));
  take(ranks_[static_cast<std::size_t>(rank)],
       {.times = report.times, .usage = report.usage, .step = report.step, .at = now});
  if (through_ < world || now - window_began_ < kWindow) return std::nullopt;
  const bool tell_steps =
      std::ranges::all_of(ranks_, [](const Rank& each) { return each.newest->times.has_value(); });
  const Window window = window_of(host_of);
  if (tell_steps) ratios_ = ratios_to_usual(window), ++windows_;
  std::optional<Straggler> leader = tell_steps ? judge_steps(window) : judge_kernel_facts(window);
  std::optional<Verdict> news = tell_once(leader ? leader->who : "", now, host_of);
  once_ = once(leader);
  begin_window(now);
  std::optional<Verdict> lasting = conclude(std::move(leader), host_of);
  return lasting ? lasting : news;
}

void StragglerWatch::take(Rank& one, Sample sample) {
  const bool told = one.newest && one.newest->times;
  const StepTimes before = told ? *one.newest->times : StepTimes();
  if (sample.times && !goes_on_from(before, *sample.times)) return forget(one);
  if (one.newest && told != sample.times.has_value()) forget(one);
  if (told && sample.times) {
    const double own = own_time(*sample.times) - own_time(before);
    if (own > one.longest) one.longest = own, one.longest_step = one.newest->step + 1;
  }
  one.newest = std::move(sample);
  if (!one.begin || (!one.begin->times && !one.begin->usage)) one.begin = one.newest;
  if (one.is_through) return;
  one.is_through = one.newest->times ? one.newest->times->steps - one.begin->times->steps >= kWindowSteps
                                     : one.begin->usage && one.newest->at - one.begin->at >= kWindow;
  through_ += one.is_through ? 1 : 0;
}

void StragglerWatch::forget(Rank& one) {
  through_ -= one.is_through ? 1 : 0;
  one = {};
}

// What the window's leader, if it is a rank, has cost all in it.
std::optional<StragglerWatch::Once> StragglerWatch::once(const std::optional<Straggler>& leader) const {
  if (!leader || leader->verdict.rank < 0 || leader->verdict.loss <= 0) return std::nullopt;
  const Rank& one = ranks_[static_cast<std::size_t>(leader->verdict.rank)];
  const StepTimes &begin = *one.begin->times, &newest = *one.newest->times;
  const double spent = own_time(newest) - own_time(begin) + newest.wait_peers - begin.wait_peers;
  const double cost = leader->verdict.loss * spent;
  if (cost < kOnceSeconds) return std::nullopt;
  return Once{.straggler = *leader, .seconds = cost, .step = one.longest_step};
}

Window StragglerWatch::window_of(const HostOf& host_of) const {
  Window window;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    const Sample &begin = *ranks_[rank].begin, &newest = *ranks_[rank].newest;
    WindowPart part{.rank = static_cast<int>(rank)};
    if (begin.times && newest.times) {
      part = window_part(part.rank, *begin.times, *newest.times);
      const std::size_t world = ranks_.size();
      if (begin.times->wait_for.size() == world && newest.times->wait_for.size() == world) {
        add_waits(*begin.times, *newest.times, part);
        part.host = host_of(part.rank);
      }
    }
    if (begin.usage && newest.usage && newest.at > begin.at)
      add_usage(*begin.usage, *newest.usage, static_cast<double>(newest.at - begin.at) / 1000, part);
    window.push_back(std::move(part));
  }
  return window;
}

// With the newest samples.
void StragglerWatch::begin_window(Millis now) {
  for (Rank& each : ranks_) each = {.begin = each.newest, .newest = each.newest};
  through_ = 0;
  window_began_ = now;
}

// A rank that leads the next window too is on its way to be named.
std::optional<Verdict> StragglerWatch::tell_once(const std::string& leader, Millis now,
                                                 const HostOf& host_of) {
  if (!once_ || leader == once_->straggler.who || once_->straggler.who == who_) return std::nullopt;
  if (told_once_at_ && now - *told_once_at_ < kOnceGap) return std::nullopt;
  told_once_at_ = now;
  Verdict verdict = once_->straggler.verdict;
  verdict.text = subject(once_->straggler, host_of) + " held the run up once, for " +
                 decimals(once_->seconds, 1) + " s in step " + std::to_string(once_->step) + ": " +
                 verdict.text;
  verdict.step = once_->step;
  return verdict;
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
  if (leader && (named || windows_led_by(leader->who) >= kLedToName))
    return name(*std::move(leader), host_of);
  if (!verdict_ || windows_led_by(who_) >= kLedToStay) return std::nullopt;
  const bool was_told = verdict_->cause != kCommunication;
  verdict_.reset();
  who_.clear();
  return was_told ? std::optional(Verdict{.text = {}, .rank = -1, .cause = {}}) : std::nullopt;
}

std::optional<Verdict> StragglerWatch::name(Straggler leader, const HostOf& host_of) {
  const bool named = verdict_ && leader.who == who_, is_told = leader.verdict.cause != kCommunication;
  const bool was_told = verdict_ && verdict_->cause != kCommunication;
  Verdict verdict = std::move(leader.verdict);
  verdict.serious = is_told && verdict.loss >= (named && verdict_->serious ? kStillSerious : kSeriousLoss);
  const std::string does =
      leader.does.empty() ? "slows the run by " + decimals(verdict.loss * 100, 0) + " %" : leader.does;
  leader.verdict.rank = verdict.rank;
  verdict.text = subject(leader, host_of) + " " + does + ": " + verdict.text;
  const bool news = !named || verdict.cause != verdict_->cause || verdict.serious != verdict_->serious;
  who_ = leader.who;
  verdict_ = std::move(verdict);
  if (is_told) return news ? verdict_ : std::nullopt;
  return was_told ? std::optional(Verdict{.text = {}, .rank = -1, .cause = {}}) : std::nullopt;
}

}  // namespace dtrun::rendezvous
