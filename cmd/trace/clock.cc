#include "cmd/trace/clock.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace dtrun::cmd {
namespace {

// A peer may send any number.
bool makes_sense(const ClockSample& sample) {
  constexpr std::int64_t kMost = std::int64_t{1} << 62;
  return sample.sent >= 0 && sample.answered >= 0 && sample.answered < kMost &&
         sample.received >= sample.sent && sample.received < kMost;
}

std::int64_t way(const ClockSample& sample) { return sample.received - sample.sent; }

}  // namespace

std::optional<ClockOffset> offset_of(std::span<const ClockSample> samples) {
  const ClockSample* best = nullptr;
  for (const ClockSample& sample : samples)
    if (makes_sense(sample) && (best == nullptr || way(sample) < way(*best))) best = &sample;
  if (best == nullptr) return std::nullopt;
  std::int64_t furthest = 0;
  for (const ClockSample& sample : samples)
    if (makes_sense(sample)) furthest = std::max(furthest, std::abs(sample.sent - best->sent));
  const auto drift = static_cast<std::int64_t>(std::ceil(static_cast<double>(furthest) * kMostDrift));
  return ClockOffset{.to_coordinator = best->sent + way(*best) / 2 - best->answered,
                     .error = (way(*best) + 1) / 2 + drift};
}

}  // namespace dtrun::cmd
