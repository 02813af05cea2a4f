#include "rendezvous/core/observe/slow_rank.h"

#include <cmath>

#include "proto/core/text.h"
#include "rendezvous/core/observe/kernel_facts.h"

namespace dtrun::rendezvous {
namespace {

constexpr int kNobody = -1;
// A fact explains a delay if it is at least half as large.
constexpr double kExplains = 0.5;
// A rank is slow by itself if the next slowest one needs at most half as much more than the others: where a
// busy machine slows several, the slowest of them is so by chance.
constexpr double kByItself = 0.5;
// Pages that come from a disk, a second: fewer do not slow a rank.
constexpr double kManyFaults = 50;
constexpr double kTimesUsualFaults = 10;

using Figure = double WindowPart::*;

// One rank beside the medians of a set of ranks.
class Comparison {
 public:
  // `but`: the rank that the set leaves out.
  Comparison(const Window& window, int but) {
    const bool counted = std::ranges::any_of(window, [](const auto& p) { return p.microbatches > 0; });
    for (const WindowPart& part : window)
      if (part.rank != but) others_.push_back(&part);
    // Ranks need not have equally much to compute, and one may have nothing.
    const auto work = [counted](const WindowPart& p) { return counted ? p.microbatches : 1; };
    const auto per_work = [&](Figure value) {
      std::vector<double> values;
      for (const WindowPart* part : others_)
        if (work(*part) > 0) values.push_back(part->*value / work(*part));
      return median(std::move(values));
    };
    math_ = per_work(&WindowPart::math), data_ = per_work(&WindowPart::data);
    other_ = of_others(&WindowPart::other), counted_ = counted;
  }

  double of_others(Figure value) const {
    std::vector<double> values;
    for (const WindowPart* part : others_) values.push_back(part->*value);
    return median(std::move(values));
  }
  double usual_math(const WindowPart& one) const { return math_ * work(one); }
  double usual_data(const WindowPart& one) const { return data_ * work(one); }
  double usual_other() const { return other_; }
  double excess(const WindowPart& one) const {
    return one.math + one.data + one.other - usual_math(one) - usual_data(one) - usual_other();
  }

 private:
  double work(const WindowPart& one) const { return counted_ ? one.microbatches : 1; }

  std::vector<const WindowPart*> others_;
  bool counted_ = false;
  double math_ = 0, data_ = 0, other_ = 0;
};

std::string in_milliseconds(double seconds) {
  return decimals(seconds * 1000, seconds < 0.01 ? 1 : 0) + " ms";
}

std::string speed_text(double bytes_per_second) {
  return bytes_per_second < 1e6 ? decimals(bytes_per_second / 1e3, 0) + " kB/s"
                                : decimals(bytes_per_second / 1e6, 1) + " MB/s";
}

// Of the time that it reads. Pages of a mapped file are not read by calls.
double bytes_per_second(const WindowPart& part) {
  return part.data > 0 ? part.read_bytes * part.step() / part.data : 0;
}

std::string slow_data(const WindowPart& one, double usual, double bytes_of_others) {
  std::string text = "it waits " + in_milliseconds(one.data) + " of each step for its data, the others " +
                     in_milliseconds(usual);
  const double own = bytes_per_second(one);
  if (own > 0 && bytes_of_others > own)
    text += " (" + speed_text(own) + ", the others " + speed_text(bytes_of_others) + ")";
  return text;
}

// Of a delay while it computes. Threads of a throttled group count as ready to run, too.
std::optional<Explanation> cause_by_kernel(const WindowPart& one, const Comparison& others) {
  const double delay =
      (std::max(0.0, one.math - others.usual_math(one)) + std::max(0.0, one.other - others.usual_other())) /
      one.step();
  const auto explains = [&](Figure fact) { return one.*fact - others.of_others(fact) >= kExplains * delay; };
  if (explains(&WindowPart::stopped)) return stopped(one);
  if (explains(&WindowPart::throttled)) return throttled(one);
  // Where all wait for a CPU, the one that does so in its math is slow, and not by more work for its
  // processor.
  const bool waits = one.cpu_wait >= delay && !explains(&WindowPart::cpu);
  if (explains(&WindowPart::cpu_wait) || waits) return shares_cores(one);
  const double usual_faults = others.of_others(&WindowPart::major_faults);
  if (one.major_faults >= std::max(kManyFaults, kTimesUsualFaults * usual_faults))
    return Explanation{
        "memory", "its memory comes back from a disk (" + decimals(one.major_faults, 0) + " pages a second)"};
  return std::nullopt;
}

Explanation cause_of(const WindowPart& one, const Comparison& others, double bytes_of_others) {
  const double math = one.math - others.usual_math(one), data = one.data - others.usual_data(one),
               other = one.other - others.usual_other();
  if (data >= math && data >= other) return {"data", slow_data(one, others.usual_data(one), bytes_of_others)};
  if (const auto cause = cause_by_kernel(one, others)) return *cause;
  if (other > math)
    return {"other", "it spends " + in_milliseconds(one.other) +
                         " of each step outside of math and data, the others " +
                         in_milliseconds(others.usual_other())};
  return {"processor", "the same work takes its processor " + decimals(one.math / others.usual_math(one), 1) +
                           " times as long"};
}

}  // namespace

std::optional<Straggler> judge_ranks(const Window& window) {
  if (window.size() < 2) return std::nullopt;
  const Comparison all(window, kNobody);
  const WindowPart& slowest =
      *std::ranges::max_element(window, {}, [&](const WindowPart& part) { return all.excess(part); });
  const Comparison others(window, slowest.rank);
  // As quick as the median, the rank would save all of them the time until the next slowest one is ready.
  double next = 0;
  for (const WindowPart& part : window)
    if (part.rank != slowest.rank) next = std::max(next, others.excess(part));
  const double excess = others.excess(slowest), cost = excess - next;
  const double loss = slowest.step() > 0 ? cost / slowest.step() : 0;
  // The others wait for whoever is late; where processors are shared, all wait for those besides.
  const double waited = others.of_others(&WindowPart::wait_peers) - slowest.wait_peers;
  if (!(loss >= kStragglerLoss) || cost < kByItself * excess || waited < kExplains * excess)
    return std::nullopt;
  std::vector<double> bytes;
  for (const WindowPart& part : window)
    if (part.rank != slowest.rank) bytes.push_back(bytes_per_second(part));
  Explanation cause = cause_of(slowest, others, median(std::move(bytes)));
  return Straggler{"rank " + std::to_string(slowest.rank),
                   {.text = std::move(cause.text),
                    .rank = slowest.rank,
                    .cause = std::move(cause.word),
                    .loss = std::min(1.0, loss)}};
}

std::vector<int> ratios_to_usual(const Window& window) {
  constexpr double kMost = 1000;
  const Comparison all(window, kNobody);
  std::vector<int> ratios;
  for (const WindowPart& part : window) {
    const double usual = all.usual_math(part) + all.usual_data(part) + all.usual_other();
    const double ratio = std::clamp(1 + all.excess(part) / usual, 0.0, kMost);
    ratios.push_back(usual > 0 ? static_cast<int>(std::lround(1000 * ratio)) : kUnknownRatio);
  }
  return ratios;
}

}  // namespace dtrun::rendezvous
