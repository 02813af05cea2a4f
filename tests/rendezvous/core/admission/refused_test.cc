// The refusals that people are told of.
#include "rendezvous/core/admission/refused.h"

#include <doctest/doctest.h>

namespace dtrun::rendezvous::refused_test {
namespace {

TEST_CASE("of an address that fails twice at once people are told once a minute") {
  Refused refused;
  CHECK(!refused.failed("10.0.0.2", 1000));
  CHECK(refused.failed("10.0.0.2", 1000 + Refused::kAtOnce));
  CHECK(!refused.failed("10.0.0.2", 7000));
  CHECK(!refused.failed("10.0.0.2", 1000 + Refused::kAtOnce + Refused::kSameAgain - 1));
  CHECK(refused.failed("10.0.0.2", 1000 + Refused::kAtOnce + Refused::kSameAgain));
}

TEST_CASE("who fails a single time, or comes in meanwhile, is not told of") {
  Refused refused;
  CHECK(!refused.failed("10.0.0.2", 1000));
  CHECK(!refused.failed("10.0.0.2", 1001 + Refused::kAtOnce));
  refused.came_in("10.0.0.2");
  CHECK(!refused.failed("10.0.0.2", 1002 + Refused::kAtOnce));
  refused.came_in("unknown");
}

TEST_CASE("a flood from everywhere is a line a second, and takes no memory") {
  Refused refused;
  int told = 0;
  for (int round = 0; round < 2; ++round)
    for (int host = 0; host < 5000; ++host) told += refused.failed(std::to_string(host), 1000 + host / 5);
  CHECK(told <= 2);
  CHECK(refused.size() <= Refused::kMost);
  CHECK(!refused.failed("10.0.0.2", 100'000));
  CHECK(refused.failed("10.0.0.2", 100'001));
}

}  // namespace
}  // namespace dtrun::rendezvous::refused_test
