#include "rendezvous/core/observe/straggler.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "proto/core/text.h"

namespace dtrun::rendezvous {
namespace {

// Another host's numbers: not believed if one fell, or is none.
bool goes_on_from(const StepTimes& before, const StepTimes& now) {
  const auto grows = [&](double StepTimes::*part) {
    return std::isfinite(now.*part) && now.*part >= before.*part;
  };
  return now.steps >= before.steps && now.microbatches >= before.microbatches && grows(&StepTimes::math) &&
         grows(&StepTimes::data) && grows(&StepTimes::wait_peers) && grows(&StepTimes::other);
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace

std::optional<Verdict> StragglerWatch::take(int rank, int world, const StepTimes& times,
                                            const HostOf& host_of, Millis now) {
  if (rank < 0 || rank >= world) return std::nullopt;
  if (ranks_.size() != static_cast<std::size_t>(world)) {
    *this = {};
    ranks_.resize(static_cast<std::size_t>(world));
  }
  Rank& one = ranks_[static_cast<std::size_t>(rank)];
  if (!goes_on_from(one.newest.value_or(StepTimes()), times)) {
    through_ -= one.is_through ? 1 : 0;
    one = {};
    return std::nullopt;
  }
  one.newest = times;
  if (!one.begin) one.begin = times;
  if (!one.is_through && times.steps - one.begin->steps >= kWindowSteps) {
    one.is_through = true;
    ++through_;
  }
  if (through_ < world || now - window_began_ < kWindow) return std::nullopt;

  kept_.push_back(judge(ranks_));
  if (kept_.size() > kWindowsKept) kept_.pop_front();
  ++windows_;
  ratios_.clear();
  for (const Judged& each : kept_.back())
    ratios_.push_back(each.ratio > 0 ? static_cast<int>(std::lround(1000 * each.ratio)) : kUnknownRatio);
  for (Rank& each : ranks_) each = {.begin = each.newest, .newest = each.newest};
  through_ = 0;
  window_began_ = now;

  const std::optional<std::size_t> slow = slow_rank();
  const Verdict nobody{.text = {}, .rank = -1, .cause = {}};
  const Verdict before = verdict_.value_or(nobody), after = slow ? name(*slow, host_of) : nobody;
  verdict_ = slow ? std::optional(after) : std::nullopt;
  return after.rank != before.rank || after.cause != before.cause ? std::optional(after) : std::nullopt;
}

// Ranks need not have equally much to compute, and one may have nothing.
std::vector<StragglerWatch::Judged> StragglerWatch::judge(const std::vector<Rank>& ranks) {
  constexpr double kMostRatio = 1000;
  const bool counted = std::ranges::any_of(
      ranks, [](const Rank& each) { return each.newest->microbatches > each.begin->microbatches; });
  std::vector<Part> parts;
  std::vector<double> works, steps, math, data, other;
  for (const Rank& each : ranks) {
    const StepTimes &from = *each.begin, &to = *each.newest;
    const auto count = static_cast<double>(to.steps - from.steps);
    const Part part{.math = (to.math - from.math) / count,
                    .data = (to.data - from.data) / count,
                    .other = (to.other - from.other) / count};
    const double work = counted ? static_cast<double>(to.microbatches - from.microbatches) / count : 1;
    if (work > 0) math.push_back(part.math / work), data.push_back(part.data / work);
    other.push_back(part.other);
    parts.push_back(part);
    works.push_back(work);
    steps.push_back(part.sum() + (to.wait_peers - from.wait_peers) / count);
  }
  const Part usual{.math = median(math), .data = median(data), .other = median(other)};
  std::vector<Judged> judged;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Part expected{.math = usual.math * works[i], .data = usual.data * works[i], .other = usual.other};
    Judged one{.excess = {.math = parts[i].math - expected.math,
                          .data = parts[i].data - expected.data,
                          .other = parts[i].other - expected.other}};
    if (expected.sum() > 0) one.ratio = std::min(kMostRatio, parts[i].sum() / expected.sum());
    if (one.is_slow()) one.loss = one.excess.sum() / steps[i];
    judged.push_back(one);
  }
  return judged;
}

std::ptrdiff_t StragglerWatch::slow_windows(std::size_t rank) const {
  return std::ranges::count_if(kept_, [rank](const auto& window) { return window[rank].is_slow(); });
}

// The slowest of the newest window, unless the one that was named is slow yet.
std::optional<std::size_t> StragglerWatch::slow_rank() const {
  if (verdict_ && slow_windows(static_cast<std::size_t>(verdict_->rank)) >= kSlowToName)
    return static_cast<std::size_t>(verdict_->rank);
  std::optional<std::size_t> slowest;
  const std::vector<Judged>& newest = kept_.back();
  for (std::size_t rank = 0; rank < newest.size(); ++rank)
    if (slow_windows(rank) >= kSlowToName && (!slowest || newest[rank].ratio > newest[*slowest].ratio))
      slowest = rank;
  return slowest;
}

// By the mean of the windows in which it was slow.
Verdict StragglerWatch::name(std::size_t rank, const HostOf& host_of) const {
  Judged sum;
  for (const std::vector<Judged>& window : kept_) {
    const Judged& one = window[rank];
    if (!one.is_slow()) continue;
    sum.ratio += one.ratio, sum.loss += one.loss;
    sum.excess.math += one.excess.math, sum.excess.data += one.excess.data;
    sum.excess.other += one.excess.other;
  }
  const auto windows = static_cast<double>(slow_windows(rank));
  const std::pair<double, const char*> causes[] = {
      {sum.excess.math, "math"}, {sum.excess.data, "data"}, {sum.excess.other, "other"}};
  const auto& [excess, cause] = *std::ranges::max_element(causes, {}, &std::pair<double, const char*>::first);
  const int number = static_cast<int>(rank);
  return {.text = "rank " + std::to_string(number) + " on " + host_of(number) + " slows the run: it takes " +
                  decimals(sum.ratio / windows, 1) + " times as long as the median of all ranks, " +
                  decimals(1000 * excess / windows, 1) + " ms of each step more for " + cause,
          .rank = number,
          .cause = cause,
          .loss = sum.loss / windows};
}

}  // namespace dtrun::rendezvous
