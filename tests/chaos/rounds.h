// Many rounds of chaos, some at a time, and what came of them together.
//   DTRUN_CHAOS_SEED=N     plays the rounds of that seed again (it is printed)
//   DTRUN_CHAOS_ONLY=N     only that round
//   DTRUN_CHAOS_ROUNDS=N   how many, instead of the test's own number
#pragma once

#include <cstdint>

namespace dtrun::test {

// Checks that each round went as the contract says, and of all together that they could have gone wrong:
// agents and workers were found while they ran, and blows met workers. `builtin`: with the built-in trainer.
void play_rounds(bool builtin, std::uint64_t rounds, int at_once);

}  // namespace dtrun::test
