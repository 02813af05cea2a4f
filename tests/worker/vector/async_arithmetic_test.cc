// That the asynchronous device of the tests is one: else the tests that pass on it show nothing.
#include "tests/worker/vector/async_arithmetic.h"

#include <doctest/doctest.h>

#include <atomic>
#include <latch>

namespace dtrun::worker::async_arithmetic_test {
namespace {

TEST_CASE("enqueued work is done in order, later, on another thread; wait() waits for it") {
  AsyncArithmetic device(1);
  const auto stream = device.make_stream();
  std::latch go(1);
  std::vector<int> done;
  AsyncArithmetic::enqueue(*stream, [&] { go.wait(); });
  for (int i = 0; i < 20; ++i) AsyncArithmetic::enqueue(*stream, [&, i] { done.push_back(i); });
  go.count_down();  // would never be reached if the call above did the work
  stream->wait();
  REQUIRE(done.size() == 20);
  for (int i = 0; i < 20; ++i) CHECK(done[i] == i);
}

TEST_CASE("work behind another stream's event waits for it, other work does not") {
  AsyncArithmetic device(2);
  const auto first = device.make_stream(), behind = device.make_stream(), beside = device.make_stream();
  std::latch go(1);
  std::atomic<bool> made = false, seen = false;
  AsyncArithmetic::enqueue(*first, [&] { go.wait(), made = true; });
  behind->after(first->record());
  AsyncArithmetic::enqueue(*behind, [&] { seen = made.load(); });
  beside->after({});
  AsyncArithmetic::enqueue(*beside, [&] { go.count_down(); });
  beside->wait();
  behind->wait();
  CHECK(seen);
}

TEST_CASE("it computes what the CPU does, in memory that the host sees only through copies") {
  AsyncArithmetic device(3);
  const auto stream = device.make_stream();
  const Buffer values = device.allocate(Where::kDevice, 1000);
  CHECK_FALSE(device.device_is_host());
  CHECK(device.behind(values.data()) != values.data());
  const std::vector<float> ones(1000, 1);
  std::vector<float> back(1000);
  device.copy(*stream, values.data(), ones.data(), 1000);
  device.accumulate(*stream, values.data(), values.data(), 1000);
  device.copy(*stream, back.data(), values.data(), 1000);
  stream->wait();
  CHECK(back == std::vector<float>(1000, 2));
}

}  // namespace
}  // namespace dtrun::worker::async_arithmetic_test
