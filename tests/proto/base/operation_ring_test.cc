#include "proto/base/operation_ring.h"

#include <doctest/doctest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

namespace dtrun::operation_ring_test {

namespace {

using State = Operation::State;

Operation receive(std::int64_t step, int bucket, int peer, State state = State::kWaits) {
  return {.generation = 2,
          .step = step,
          .kind = Operation::Kind::kReceive,
          .state = state,
          .bucket = bucket,
          .round = 1,
          .peer = peer,
          .began = step * 100};
}

}  // namespace

TEST_CASE("operations are read as they were written, the oldest first, with what became of them") {
  const auto ring = std::make_unique<OperationRing>();
  CHECK(ring->read().empty());
  const std::size_t first = ring->begin(receive(7, 0, 3));
  const std::size_t second = ring->begin(receive(8, 1, 2));
  ring->end(first, State::kDone, 750);
  std::vector<Operation> seen = ring->read();
  REQUIRE(seen.size() == 2);
  Operation done = receive(7, 0, 3, State::kDone);
  done.ended = 750;
  CHECK(seen[0] == done);
  CHECK(seen[1] == receive(8, 1, 2));
  ring->end(second, State::kBroken, 900);
  CHECK(ring->read()[1].state == State::kBroken);
}

TEST_CASE("the newest operations are kept, and one that waits for as long as it does") {
  const auto ring = std::make_unique<OperationRing>();
  const std::size_t waiting = ring->begin(receive(1, 5, 4));
  for (std::int64_t step = 2; step < 5000; ++step)
    ring->end(ring->begin(receive(step, 0, 1)), State::kDone, step);
  std::vector<Operation> seen = ring->read();
  CHECK(seen.size() == OperationRing::kSlots);
  CHECK(seen.front() == receive(1, 5, 4));
  CHECK(seen.back().step == 4999);
  CHECK(seen[1].step > 4999 - static_cast<std::int64_t>(OperationRing::kSlots));
  CHECK(longest_wait(seen) == receive(1, 5, 4));
  ring->end(waiting, State::kDone, 6000);
  CHECK_FALSE(longest_wait(ring->read()).has_value());
}

TEST_CASE("where every slot waits a further operation takes the place of one") {
  const auto ring = std::make_unique<OperationRing>();
  for (int i = 0; i < 600; ++i) ring->begin(receive(i, 0, 1));
  CHECK(ring->read().size() == OperationRing::kSlots);
}

TEST_CASE("a reader that comes back gets what is new, and hears of what was written over meanwhile") {
  const auto ring = std::make_unique<OperationRing>();
  const auto write = [&](std::int64_t from, std::int64_t to) {
    for (std::int64_t step = from; step < to; ++step) ring->begin(receive(step, 0, 1, State::kDone));
  };
  CHECK(ring->read_after(0, 100).operations.empty());
  write(0, 7);
  OperationRing::Newer newer = ring->read_after(0, 4);
  REQUIRE(newer.operations.size() == 4);
  CHECK(newer.operations[3] == receive(3, 0, 1, State::kDone));
  CHECK(newer.more);
  newer = ring->read_after(newer.last, 100);
  CHECK(newer.operations.size() == 3);
  CHECK_FALSE(newer.more);
  CHECK(newer.lost == 0);
  write(7, 7 + 300);
  newer = ring->read_after(newer.last, 1000);
  CHECK(newer.lost == 300 - static_cast<std::int64_t>(OperationRing::kSlots));
  REQUIRE(newer.operations.size() == OperationRing::kSlots);
  CHECK(newer.operations.back().step == 306);
  CHECK(ring->read_after(newer.last, 1000).operations.empty());
}

TEST_CASE("a reader that comes back while threads write misses nothing that it is not told of") {
  const auto ring = std::make_unique<TraceRing>();
  constexpr std::int64_t kEach = 100000;
  constexpr int kWriters = 6;  // more than processors: some are stopped while they write
  std::vector<std::thread> writers;
  for (int peer = 0; peer < kWriters; ++peer)
    writers.emplace_back([&, peer] {
      for (std::int64_t step = 0; step < kEach; ++step) ring->begin(receive(step, 0, peer, State::kDone));
    });
  std::int64_t seen = 0, lost = 0, backwards = 0;
  std::int64_t next[kWriters] = {};
  for (std::uint64_t last = 0; seen + lost < kWriters * kEach;) {
    const TraceRing::Newer newer = ring->read_after(last, 1000);
    last = newer.last;
    lost += newer.lost;
    for (const Operation& each : newer.operations) {
      ++seen;
      backwards += each.step < next[each.peer];
      next[each.peer] = each.step + 1;
    }
  }
  for (std::thread& writer : writers) writer.join();
  CHECK(seen > 0);
  CHECK(backwards == 0);
}

TEST_CASE("of several that wait the one that began first is the longest") {
  CHECK(longest_wait({receive(9, 0, 1), receive(4, 0, 2), receive(1, 0, 3, State::kDone)}) ==
        receive(4, 0, 2));
  CHECK_FALSE(longest_wait({}).has_value());
}

TEST_CASE("a reader of memory that threads write to sees whole operations") {
  const auto ring = std::make_unique<OperationRing>();
  std::atomic<bool> over{false};
  std::vector<std::thread> writers;
  for (int peer = 0; peer < 2; ++peer)
    writers.emplace_back([&, peer] {
      for (std::int64_t step = 0; !over; ++step)
        ring->end(ring->begin(receive(step, static_cast<int>(step % 1000), peer)), State::kDone, step);
    });
  std::size_t seen = 0, torn = 0;
  while (seen < 200000) {
    for (const Operation& each : ring->read()) {
      ++seen;
      torn += each.bucket != each.step % 1000 || each.began != each.step * 100;
    }
  }
  over = true;
  for (std::thread& writer : writers) writer.join();
  CHECK(torn == 0);
}

}  // namespace dtrun::operation_ring_test
