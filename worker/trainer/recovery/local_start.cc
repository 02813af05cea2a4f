#include "worker/trainer/recovery/local_start.h"

#include <algorithm>
#include <tuple>

#include "proto/core/text.h"

namespace dtrun::worker {
namespace {

std::int64_t step_of(const HeldReplicas& rank, std::int64_t replica) {
  return rank.steps.empty() ? -1 : rank.steps[static_cast<std::size_t>(replica)];
}

// The first of the ranks that have got furthest with it.
std::optional<LocalStart::Replica> furthest(std::span<const HeldReplicas> ranks, std::int64_t replica,
                                            std::int64_t sync) {
  std::optional<LocalStart::Replica> best;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const std::int64_t step = step_of(ranks[rank], replica);
    if (is_current(ranks[rank], replica, sync) && (!best || step > best->step))
      best = {.from = static_cast<int>(rank), .step = step};
  }
  return best;
}

}  // namespace

bool is_current(const HeldReplicas& rank, std::int64_t replica, std::int64_t sync) {
  const std::int64_t step = step_of(rank, replica);
  return rank.sync == sync ? step >= sync : rank.sync >= 0 && step == sync;
}

std::optional<LocalStart> start_of_replicas(std::span<const HeldReplicas> ranks, int replicas, bool alike) {
  const auto newest = std::ranges::max_element(
      ranks, {}, [](const HeldReplicas& rank) { return std::tuple(rank.sync, rank.arrived); });
  if (newest->sync < 0) return std::nullopt;
  LocalStart start{.source = static_cast<int>(newest - ranks.begin()),
                   .sync = newest->sync,
                   .arrived = newest->arrived,
                   .replicas = {}};
  const auto keeper = std::ranges::find(ranks, start.sync, &HeldReplicas::kept);
  for (int replica = 0; replica < replicas; ++replica) {
    std::optional<LocalStart::Replica> one = furthest(ranks, replica, start.sync);
    if (!one && alike) one = {.from = start.source, .step = start.sync, .redone = true};
    if (!one && keeper != ranks.end())
      one = {.from = static_cast<int>(keeper - ranks.begin()), .step = start.sync, .redone = true};
    if (!one) return std::nullopt;
    start.replicas.push_back(*one);
  }
  return start;
}

bool LocalStart::is_behind_sync() const {
  return std::ranges::any_of(replicas, [this](const Replica& one) { return one.step > sync; });
}

std::string in_words(const LocalStart& start) {
  if (!start.is_behind_sync()) return "";
  std::vector<std::string> redone;
  for (std::size_t number = 0; number < start.replicas.size(); ++number)
    if (start.replicas[number].redone) redone.push_back(std::to_string(number));
  if (redone.empty()) return "; no replica loses more than the step in hand";
  return (redone.size() == 1 ? "; replica " : "; replicas ") + join(redone, ", ") +
         (redone.size() == 1 ? " is" : " are") + " redone from step " + std::to_string(start.sync);
}

}  // namespace dtrun::worker
