#include "worker/core/sampler.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "worker/core/tree.h"

namespace dtrun::worker::sampler_test {
namespace {

std::vector<std::uint32_t> epoch_order(std::uint64_t seed, std::int64_t epoch, std::int64_t samples) {
  const EpochOrder order(seed, epoch, samples);
  std::vector<std::uint32_t> all;
  for (std::int64_t place = 0; place < samples; ++place) all.push_back(order.at(place));
  return all;
}

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

RandomStream stream_of(std::uint64_t seed, std::uint32_t epoch) {
  return RandomStream(seed, RandomUse::kShuffle, epoch, 0);
}

std::vector<std::uint32_t> permutation_of(std::int64_t size, std::uint64_t seed = 1) {
  const IndexPermutation permutation(stream_of(seed, 0), size);
  std::vector<std::uint32_t> all;
  for (std::int64_t i = 0; i < size; ++i) all.push_back(permutation.at(i));
  return all;
}

TEST_CASE("the order that is computed place by place is a permutation of any size") {
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = 1; size <= 70; ++size) sizes.push_back(size);
  for (const std::int64_t power : {128, 256, 512, 1024, 4096, 32768, 65536}) {
    sizes.insert(sizes.end(), {power - 1, power, power + 1});
  }
  for (const std::int64_t size : sizes) {
    CAPTURE(size);
    auto sorted = permutation_of(size);
    std::ranges::sort(sorted);
    bool whole = true;
    for (std::size_t i = 0; i < sorted.size(); ++i) whole = whole && sorted[i] == i;
    CHECK(whole);
  }
}

TEST_CASE("the order that is computed never changes between versions: runs must be repeatable") {
  CHECK(permutation_of(10) == std::vector<std::uint32_t>{2, 9, 4, 7, 3, 8, 0, 5, 6, 1});
}

TEST_CASE("the order that is computed leaves nothing in its place, and neighbours far apart") {
  constexpr std::int64_t kSize = 60000;
  const auto order = permutation_of(kSize);
  std::int64_t fixed = 0, together = 0, rising = 0;
  double product = 0;
  for (std::int64_t i = 0; i + 1 < kSize; ++i) {
    const std::int64_t here = order[static_cast<std::size_t>(i)],
                       next = order[static_cast<std::size_t>(i + 1)];
    fixed += here == i;
    together += std::abs(here - next) == 1;
    rising += next > here;
    product += (static_cast<double>(here) / kSize - 0.5) * (static_cast<double>(i) / kSize - 0.5) * 12;
  }
  CHECK(fixed < 8);                                         // 1 expected
  CHECK(together < 12);                                     // 2 expected
  CHECK(std::abs(rising - kSize / 2) < 400);                // five standard deviations
  CHECK(std::abs(product / kSize) < 5 / std::sqrt(kSize));  // the correlation
}

TEST_CASE("every sample is equally likely in a place of the order that is computed") {
  int counts[10] = {};
  for (std::uint64_t seed = 0; seed < 20000; ++seed) {
    ++counts[IndexPermutation(stream_of(seed, 0), 10).at(3)];
  }
  // Five standard deviations around the expected 2000.
  for (const int count : counts) CHECK(std::abs(count - 2000) < 213);
}

TEST_CASE("up to 2^22 samples the order is shuffled, beyond it is computed") {
  constexpr std::int64_t kMost = EpochOrder::kLargestShuffle;
  const EpochOrder most(42, 3, kMost), beyond(42, 3, kMost + 1);
  const IndexPermutation as_computed(stream_of(42, 3), kMost + 1), not_computed(stream_of(42, 3), kMost);
  int same = 0;
  std::vector<bool> seen(static_cast<std::size_t>(kMost));
  std::int64_t distinct = 0;
  for (std::int64_t place = 0; place < kMost; ++place) {
    const std::uint32_t sample = most.at(place);
    distinct += !seen[sample];
    seen[sample] = true;
  }
  CHECK(distinct == kMost);
  for (std::int64_t place = 0; place <= kMost; place += 1000) {
    CHECK(beyond.at(place) == as_computed.at(place));
    same += most.at(place) == not_computed.at(place);
  }
  CHECK(same < 3);
}

TEST_CASE("beyond 2^22 samples the order depends on seed and epoch alone, and needs no memory") {
  constexpr std::int64_t kSamples = std::int64_t{1} << 32;  // an array of them would be 16 GB
  std::vector<EpochOrder> orders;
  for (std::int64_t epoch = 0; epoch < 1000; ++epoch) orders.emplace_back(42, epoch, kSamples);
  for (const std::int64_t place : {std::int64_t{0}, std::int64_t{1}, kSamples / 3, kSamples - 1}) {
    CHECK(orders[1].at(place) == EpochOrder(42, 1, kSamples).at(place));
    CHECK(orders[1].at(place) != orders[0].at(place));
    CHECK(orders[1].at(place) != orders[999].at(place));
    CHECK(orders[1].at(place) != EpochOrder(43, 1, kSamples).at(place));
    CHECK(orders[1].at(place) != EpochOrder(42, 1 + kSamples, kSamples).at(place));
  }
}

// How often each sample is used in an epoch by `world` workers that cut every step's leaves among them.
std::vector<int> uses_in_epoch(const BatchSampler& batches, std::int64_t epoch, std::int64_t samples,
                               int micro_batch, int world) {
  const auto order = epoch_order(1, epoch, samples);
  std::vector<int> uses(static_cast<std::size_t>(samples));
  for (std::int64_t i = 0; i < batches.steps_per_epoch(); ++i) {
    const StepPlan plan = batches.step(epoch * batches.steps_per_epoch() + i);
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
      const BatchSampler batches(samples, global_batch, kMicroBatch, 2, -1);
      for (int world : {1, 2, 3, 4, 7, 16}) {
        for (std::int64_t epoch : {0, 1}) {
          const auto uses = uses_in_epoch(batches, epoch, samples, kMicroBatch, world);
          CHECK(std::ranges::all_of(uses, [](int count) { return count == 1; }));
        }
      }
    }
  }
}

TEST_CASE("the last step of an epoch takes what is left") {
  const BatchSampler batches(100, 32, 8, 3, -1);
  CHECK(batches.steps_per_epoch() == 4);
  CHECK(batches.total_steps() == 12);
  const StepPlan last = batches.step(7);
  CHECK(last.epoch == 1);
  CHECK(last.first_sample == 96);
  CHECK(last.samples == 4);
  CHECK(last.leaves == 1);
  CHECK(batches.step(8).epoch == 2);
  CHECK(batches.step(8).first_sample == 0);
}

TEST_CASE("a smaller last step of an epoch can be left out, a whole one is not") {
  const BatchSampler batches(100, 32, 8, 3, -1, true);
  CHECK(batches.steps_per_epoch() == 3);
  CHECK(batches.total_steps() == 9);
  const StepPlan last = batches.step(5);
  CHECK(last.epoch == 1);
  CHECK(last.first_sample == 64);
  CHECK(last.samples == 32);
  CHECK(batches.step(6).epoch == 2);
  CHECK(batches.step(6).first_sample == 0);
  CHECK(BatchSampler(96, 32, 8, 3, -1, true).steps_per_epoch() == 3);
  CHECK(BatchSampler(32, 32, 8, 3, -1, true).steps_per_epoch() == 1);
}

TEST_CASE("max_steps overrides the epochs, either way") {
  CHECK(BatchSampler(100, 32, 8, 3, 5).total_steps() == 5);
  CHECK(BatchSampler(100, 32, 8, 3, 50).total_steps() == 50);
  CHECK(BatchSampler(100, 32, 8, 3, 50).step(49).epoch == 12);
}

}  // namespace
}  // namespace dtrun::worker::sampler_test
