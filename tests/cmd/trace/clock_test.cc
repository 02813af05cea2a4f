#include "cmd/trace/clock.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <random>
#include <vector>

namespace dtrun::cmd::clock_test {

TEST_CASE("a node's clock is where its answer lay in the middle of the shortest way") {
  const std::vector<ClockSample> samples{{.sent = 1000, .answered = 900'000, .received = 1900},
                                         {.sent = 2000, .answered = 900'700, .received = 2100},
                                         {.sent = 3000, .answered = 902'500, .received = 3400}};
  const auto offset = offset_of(samples);
  REQUIRE(offset);
  CHECK(offset->to_coordinator == 2050 - 900'700);
  CHECK(offset->error == 50 + 1);  // and the drift of 1 µs
}

TEST_CASE("whatever the ways there and back, the offset is wrong by no more than its error") {
  std::mt19937_64 random(7);
  const auto below = [&](std::int64_t most) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(most));
  };
  for (int round = 0; round < 1000; ++round) {
    const std::int64_t truth =
        below(2'000'000'000) - 1'000'000'000;  // node's time and this is the coordinator's
    std::vector<ClockSample> samples;
    for (std::int64_t at = 5'000'000'000; samples.size() < 20; at += below(100'000'000)) {
      const std::int64_t there = below(3'000'000), back = below(3'000'000);
      samples.push_back({.sent = at, .answered = at + there - truth, .received = at + there + back});
    }
    const auto offset = offset_of(samples);
    REQUIRE(offset);
    CHECK(std::abs(offset->to_coordinator - truth) <= offset->error);
  }
}

TEST_CASE("a long trace allows for clocks that drift apart") {
  const std::vector<ClockSample> samples{
      {.sent = 0, .answered = 0, .received = 10},
      {.sent = 2'000'000'000, .answered = 2'000'000'000, .received = 2'000'000'900}};
  const auto offset = offset_of(samples);
  REQUIRE(offset);
  CHECK(offset->error == 5 + 1'000'000);
}

TEST_CASE("answers that make no sense say nothing") {
  constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
  CHECK_FALSE(offset_of({}));
  const std::vector<ClockSample> senseless{{.sent = 10, .answered = 5, .received = 9},
                                           {.sent = 0, .answered = kHuge, .received = 5},
                                           {.sent = 0, .answered = -1, .received = 5},
                                           {.sent = -5, .answered = 0, .received = kHuge}};
  CHECK_FALSE(offset_of(senseless));
}

}  // namespace dtrun::cmd::clock_test
