#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <latch>
#include <memory>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "tests/worker/reduction/plain_sum.h"
#include "tests/worker/vector/async_arithmetic.h"
#include "worker/core/tree.h"
#include "worker/reduction/accumulator.h"

namespace dtrun::worker::reduction_test {
namespace {

// One worker's part: lanes finish (leaf, bucket) in a random order that keeps each leaf's buckets in order.
struct WorkerSum {
  WorkerSum(Arithmetic& arithmetic, std::size_t size, const std::vector<VectorRange>& buckets)
      : arithmetic(arithmetic),
        buckets(buckets),
        accumulator(
            arithmetic, [&arithmetic, size] { return arithmetic.allocate(Where::kDevice, size); }, buckets, 1,
            [this](int bucket, std::span<const float* const> partials, Stream& stream) {
              const VectorRange range = this->buckets[bucket];
              for (std::size_t i = 0; i < partials.size(); ++i)
                this->arithmetic.copy(stream, sums[i].data() + range.begin, partials[i] + range.begin,
                                      range.size());
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
    while (static_cast<int>(streams.size()) < lanes) streams.push_back(arithmetic.make_stream());
    std::vector<std::thread> threads;
    for (int lane = 0; lane < lanes; ++lane) {
      threads.emplace_back([&, lane] {
        Stream& stream = *streams[lane];
        for (std::size_t i = lane; i < order.size(); i += lanes) {
          float* const buffer = accumulator.take(order[i], stream);
          for (std::size_t bucket = 0; bucket < buckets.size(); ++bucket) {
            const VectorRange range = buckets[bucket];
            arithmetic.copy(stream, buffer + range.begin, leaves[order[i]].data() + range.begin,
                            range.size());
            accumulator.complete(order[i], static_cast<int>(bucket), stream);
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const auto& stream : streams) stream->wait();
  }

  Arithmetic& arithmetic;
  std::vector<std::unique_ptr<Stream>> streams;  // [lane]
  std::vector<VectorRange> buckets;
  std::vector<Vector> sums;  // of accumulator.blocks()
  std::atomic<std::size_t> buckets_done = 0;
  TreeAccumulator accumulator;
};

void check_any_split(Arithmetic& arithmetic, int rounds) {
  std::mt19937 random(7);
  for (int round = 0; round < rounds; ++round) {
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
      WorkerSum worker(arithmetic, size, {{cut, size}, {0, cut}});
      worker.run(leaves, rank * count / world, (rank + 1) * count / world, lanes, random);
      if (!worker.sums.empty()) REQUIRE(worker.buckets_done == 2);
      for (const Block& block : worker.accumulator.blocks()) blocks.push_back(block);
      for (Vector& sum : worker.sums) partials.push_back(std::move(sum));
    }

    std::vector<const float*> inputs;
    for (const Vector& partial : partials) inputs.push_back(partial.data());
    const Vector total = carry_out(plan_sum(blocks, count), inputs, size);
    REQUIRE(same_bits(total, recursive_sum(leaves, 0, std::size_t{1} << tree_height(count))));
  }
}

TEST_CASE("any split over workers and lanes, in any order, gives the bits of the plain recursive sum") {
  check_any_split(*make_cpu_arithmetic(), 150);
}

TEST_CASE("so it does where the additions are only enqueued, and done some time later") {
  AsyncArithmetic device(7);
  check_any_split(device, 15);
}

void check_steps(Arithmetic& arithmetic, const std::vector<int>& counts, int lanes) {
  std::mt19937 random(11);
  WorkerSum worker(arithmetic, 300, {{200, 300}, {50, 200}, {0, 50}});
  for (const int count : counts) {
    CAPTURE(count);
    const std::vector<Vector> leaves = random_leaves(random, count, 300);
    worker.run(leaves, 0, count, lanes, random);
    REQUIRE(worker.sums.size() == 1);
    REQUIRE(worker.buckets_done == 3);
    REQUIRE(same_bits(worker.sums[0], recursive_sum(leaves, 0, std::size_t{1} << tree_height(count))));
  }
}

TEST_CASE("an accumulator serves steps of different sizes one after the other") {
  check_steps(*make_cpu_arithmetic(), {8, 3, 8, 1, 16}, 2);
}

TEST_CASE("all buffers of a step are made before it, and no more than it takes") {
  const auto device = make_cpu_arithmetic();
  const auto stream = device->make_stream();
  for (std::int64_t begin = 0; begin < 20; ++begin) {
    for (std::int64_t end = begin + 1; end <= 33; ++end) {
      std::size_t made = 0;
      TreeAccumulator accumulator(
          *device,
          [&] {
            ++made;
            return device->allocate(Where::kDevice, 4);
          },
          {{0, 4}}, 1, [](int, std::span<const float* const>, Stream&) {});
      accumulator.begin(begin, end, 33);
      const std::size_t before = made;
      std::set<float*> used;
      for (std::int64_t leaf = begin; leaf < end; ++leaf) {
        used.insert(accumulator.take(leaf, *stream));
        accumulator.complete(leaf, 0, *stream);
      }
      CHECK(made == before);
      CHECK(used.size() == before);
    }
  }
}

TEST_CASE("a buffer is used again while the addition of what was in it is still to be done") {
  AsyncArithmetic device(13);
  check_steps(device, {32, 13, 64, 1, 64, 40}, 3);
}

TEST_CASE("a buffer whose buckets were added on several streams is used again after all of them") {
  constexpr std::size_t kSize = 64, kHalf = 32;
  AsyncArithmetic device(17);
  const auto a = device.make_stream(), b = device.make_stream(), c = device.make_stream();
  Vector total(kSize);
  TreeAccumulator accumulator(
      device, [&] { return device.allocate(Where::kDevice, kSize); }, {{kHalf, kSize}, {0, kHalf}}, 1,
      [&](int bucket, std::span<const float* const> partials, Stream& stream) {
        const std::size_t begin = bucket == 0 ? kHalf : 0;
        device.copy(stream, total.data() + begin, partials[0] + begin, kHalf);
      });
  accumulator.begin(0, 3, 3);
  const auto write = [&](std::int64_t leaf, const Vector& values, Stream& stream) {
    device.copy(stream, accumulator.take(leaf, stream), values.data(), kSize);
  };
  const Vector one(kSize, 1), ten(kSize, 10), hundred(kSize, 100);
  write(0, one, *a);
  write(1, ten, *b);
  accumulator.complete(0, 1, *a);
  accumulator.complete(1, 0, *b);
  std::latch reached(1), go(1);
  device.enqueue(*a, [&] {
    reached.count_down();
    go.wait();
  });
  accumulator.complete(0, 0, *a);  // adds leaf 1's half on stream a, once that may go on
  accumulator.complete(1, 1, *b);  // adds its other half on stream b, and gives its buffer back
  write(2, hundred, *c);
  std::atomic<bool> written = false;
  device.enqueue(*c, [&] { written = true; });
  // The second stream gives the buffer back once the first one goes on, and the third one waits for that.
  reached.wait();
  const auto waits = [](const std::unique_ptr<Stream>& stream) {
    return dynamic_cast<const AsyncStream&>(*stream).waits_for_another();
  };
  while (!written && !(waits(b) && waits(c))) std::this_thread::yield();
  const bool too_early = written;
  go.count_down();
  for (const int bucket : {0, 1}) accumulator.complete(2, bucket, *c);
  for (Stream* stream : {a.get(), b.get(), c.get()}) stream->wait();
  CHECK_FALSE(too_early);
  CHECK(total == Vector(kSize, 111));
}

TEST_CASE("the order of additions matters for these values, so the tests above can fail") {
  std::mt19937 random(3);
  const std::vector<Vector> leaves = random_leaves(random, 8, 1000);
  Vector in_sequence = leaves[0];
  for (int leaf = 1; leaf < 8; ++leaf)
    std::ranges::transform(in_sequence, leaves[leaf], in_sequence.begin(), std::plus());
  CHECK_FALSE(same_bits(in_sequence, recursive_sum(leaves, 0, 8)));
}

}  // namespace
}  // namespace dtrun::worker::reduction_test
