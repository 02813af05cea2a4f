// kill -9 of workers, agents and coordinators at random moments: the job ends well or with the contract's
// code, in time, and nothing is left running. How to play rounds again: rounds.h.
#include <doctest/doctest.h>

#include "tests/chaos/rounds.h"

namespace dtrun::kill_test {

constexpr int kAtOnce = 6;  // most of a round's time is spent waiting

TEST_CASE("whoever is killed whenever, the job ends as the contract says and nothing is left running") {
  dtrun::test::play_rounds(false, 8, kAtOnce);
}

TEST_CASE("the same in many rounds" * doctest::test_suite("long")) {
  dtrun::test::play_rounds(false, 80, kAtOnce);
}

}  // namespace dtrun::kill_test
