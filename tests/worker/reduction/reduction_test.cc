#include <doctest/doctest.h>

#include <algorithm>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "tests/worker/reduction/plain_sum.h"
#include "worker/core/tree.h"
#include "worker/reduction/accumulator.h"

namespace dtrun::worker {
namespace {

// One worker's part: lanes finish (leaf, bucket) in a random order that keeps each leaf's buckets in order.
struct WorkerSum {
  WorkerSum(std::size_t size, const std::vector<VectorRange>& buckets)
      : buckets(buckets),
        accumulator(size, buckets, [this](int bucket, std::span<const float* const> partials) {
          std::lock_guard lock(mutex);
          for (std::size_t i = 0; i < partials.size(); ++i) {
            const VectorRange range = this->buckets[bucket];
            std::copy(partials[i] + range.begin, partials[i] + range.end, sums[i].begin() + range.begin);
          }
          ++buckets_done;
        }) {}

  void run(const std::vector<Vector>& leaves, std::int64_t begin, std::int64_t end, int lanes,
           std::mt19937& random) {
    accumulator.begin(begin, end, static_cast<std::int64_t>(leaves.size()));
    sums.assign(accumulator.blocks().size(), Vector(leaves[0].size()));
    buckets_done = 0;
    std::vector<std::int64_t> order;
    for (std::int64_t leaf = begin; leaf < end; ++leaf) order.push_back(leaf);
    std::shuffle(order.begin(), order.end(), random);
    std::vector<std::thread> threads;
    for (int lane = 0; lane < lanes; ++lane) {
      threads.emplace_back([&, lane] {
        for (std::size_t i = lane; i < order.size(); i += lanes) {
          std::ranges::copy(leaves[order[i]], accumulator.take(order[i]));
          for (std::size_t bucket = 0; bucket < buckets.size(); ++bucket) {
            accumulator.complete(order[i], static_cast<int>(bucket));
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  std::vector<VectorRange> buckets;
  std::mutex mutex;
  std::vector<Vector> sums;  // of accumulator.blocks()
  std::size_t buckets_done = 0;
  TreeAccumulator accumulator;
};

TEST_CASE("any split over workers and lanes, in any order, gives the bits of the plain recursive sum") {
  std::mt19937 random(7);
  for (int round = 0; round < 150; ++round) {
    const int count = 1 + static_cast<int>(random() % 40);
    const int world = 1 + static_cast<int>(random() % 9);
    const int lanes = 1 + static_cast<int>(random() % 3);
    const std::size_t size = 1 + random() % 3000;
    const std::size_t cut = random() % (size + 1);
    CAPTURE(round);
    CAPTURE(count);
    CAPTURE(world);
    const std::vector<Vector> leaves = random_leaves(random, count, size);

    std::vector<Block> blocks;
    std::vector<Vector> partials;
    for (int rank = 0; rank < world; ++rank) {
      WorkerSum worker(size, {{cut, size}, {0, cut}});
      worker.run(leaves, rank * count / world, (rank + 1) * count / world, lanes, random);
      if (!worker.sums.empty()) REQUIRE(worker.buckets_done == 2);
      for (const Block& block : worker.accumulator.blocks()) blocks.push_back(block);
      for (Vector& sum : worker.sums) partials.push_back(std::move(sum));
    }

    std::vector<const float*> inputs;
    for (const Vector& partial : partials) inputs.push_back(partial.data());
    Vector total(size);
    TreeSum(blocks, count).run(inputs, total);
    REQUIRE(same_bits(total, recursive_sum(leaves, 0, std::size_t{1} << tree_height(count))));
  }
}

TEST_CASE("an accumulator serves steps of different sizes one after the other") {
  std::mt19937 random(11);
  WorkerSum worker(100, {{50, 100}, {0, 50}});
  for (const int count : {8, 3, 8, 1, 16}) {
    const std::vector<Vector> leaves = random_leaves(random, count, 100);
    worker.run(leaves, 0, count, 2, random);
    REQUIRE(worker.sums.size() == 1);
    CHECK(same_bits(worker.sums[0], recursive_sum(leaves, 0, std::size_t{1} << tree_height(count))));
  }
}

TEST_CASE("the order of additions matters for these values, so the tests above can fail") {
  std::mt19937 random(3);
  const std::vector<Vector> leaves = random_leaves(random, 8, 1000);
  Vector in_sequence = leaves[0];
  for (int leaf = 1; leaf < 8; ++leaf) add_right(in_sequence, leaves[leaf]);
  CHECK_FALSE(same_bits(in_sequence, recursive_sum(leaves, 0, 8)));
}

}  // namespace
}  // namespace dtrun::worker
