#include "worker/core/sampler.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "worker/core/tree.h"

namespace dtrun::worker {
namespace {

TEST_CASE("an epoch's order is a permutation that depends on seed and epoch alone") {
  const auto order = epoch_order(42, 3, 1000);
  CHECK(order == epoch_order(42, 3, 1000));
  CHECK(order != epoch_order(42, 4, 1000));
  CHECK(order != epoch_order(43, 3, 1000));
  CHECK(order != epoch_order(42 + (std::uint64_t{1} << 32), 3, 1000));
  for (std::int64_t samples : {0, 1, 2, 3, 1000}) {
    auto sorted = epoch_order(7, 0, samples);
    std::ranges::sort(sorted);
    CHECK(static_cast<std::int64_t>(sorted.size()) == samples);
    for (std::size_t i = 0; i < sorted.size(); ++i) CHECK(sorted[i] == i);
  }
}

TEST_CASE("an epoch's order never changes between versions: runs must be repeatable") {
  CHECK(epoch_order(42, 0, 8) == std::vector<std::uint32_t>{5, 2, 7, 1, 4, 3, 0, 6});
}

TEST_CASE("all orders are equally likely") {
  int counts[6] = {};
  constexpr int kTrials = 60000;
  for (int seed = 0; seed < kTrials; ++seed) {
    const auto order = epoch_order(static_cast<std::uint64_t>(seed), 0, 3);
    ++counts[2 * order[0] + (order[1] > order[2])];
  }
  // Five standard deviations around the expected 10000.
  for (int count : counts) CHECK(std::abs(count - kTrials / 6) < 457);
}

// How often each sample is used in an epoch by `world` workers that cut every step's leaves among them.
std::vector<int> uses_in_epoch(const Schedule& schedule, std::int64_t epoch, std::int64_t samples,
                               int micro_batch, int world) {
  const auto order = epoch_order(1, epoch, samples);
  std::vector<int> uses(static_cast<std::size_t>(samples));
  for (std::int64_t i = 0; i < schedule.steps_per_epoch(); ++i) {
    const StepPlan plan = schedule.step(epoch * schedule.steps_per_epoch() + i);
    REQUIRE(plan.epoch == epoch);
    for (int rank = 0; rank < world; ++rank) {
      const LeafRange range = leaves_of_rank(plan.leaves, rank, world);
      const std::int64_t end = std::min(range.end * micro_batch, plan.samples);
      for (std::int64_t at = range.begin * micro_batch; at < end; ++at) {
        ++uses[order[static_cast<std::size_t>(plan.first_sample + at)]];
      }
    }
  }
  return uses;
}

TEST_CASE("every sample is used exactly once per epoch, whatever the world size") {
  constexpr int kMicroBatch = 4;
  for (std::int64_t samples : {1, 3, 16, 17, 100, 131}) {
    for (int global_batch : {4, 16, 32}) {
      const Schedule schedule(samples, global_batch, kMicroBatch, 2, -1);
      for (int world : {1, 2, 3, 4, 7, 16}) {
        for (std::int64_t epoch : {0, 1}) {
          const auto uses = uses_in_epoch(schedule, epoch, samples, kMicroBatch, world);
          CHECK(std::ranges::all_of(uses, [](int count) { return count == 1; }));
        }
      }
    }
  }
}

TEST_CASE("the last step of an epoch takes what is left") {
  const Schedule schedule(100, 32, 8, 3, -1);
  CHECK(schedule.steps_per_epoch() == 4);
  CHECK(schedule.total_steps() == 12);
  const StepPlan last = schedule.step(7);
  CHECK(last.epoch == 1);
  CHECK(last.first_sample == 96);
  CHECK(last.samples == 4);
  CHECK(last.leaves == 1);
  CHECK(schedule.step(8).epoch == 2);
  CHECK(schedule.step(8).first_sample == 0);
}

TEST_CASE("max_steps overrides the epochs, either way") {
  CHECK(Schedule(100, 32, 8, 3, 5).total_steps() == 5);
  CHECK(Schedule(100, 32, 8, 3, 50).total_steps() == 50);
  CHECK(Schedule(100, 32, 8, 3, 50).step(49).epoch == 12);
}

}  // namespace
}  // namespace dtrun::worker
