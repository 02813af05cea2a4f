// The same with the built-in trainer, which also leaves the same bytes as a calm run; a skip where its data
// set is not installed. How to play rounds again: rounds.h.
#include <doctest/doctest.h>

#include "tests/chaos/round.h"
#include "tests/chaos/rounds.h"
#include "tests/support/skip.h"

namespace dtrun::trainer_kill_test {
namespace {

void play(std::uint64_t rounds) {
  if (!dtrun::test::has_trainer_data())
    return dtrun::test::skip("the package dataset-fashion-mnist is not installed");
  constexpr int kAtOnce = 3;  // each has up to four workers that compute
  dtrun::test::play_rounds(true, rounds, kAtOnce);
}

}  // namespace

TEST_CASE(
    "whoever is killed whenever, the built-in trainer ends as the contract says and with the same model") {
  play(8);
}

TEST_CASE("the same in many rounds" * doctest::test_suite("long")) { play(20); }

}  // namespace dtrun::trainer_kill_test
