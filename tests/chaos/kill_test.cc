// kill -9 of workers, agents and coordinators at random moments: the job ends well or with the contract's
// code, in time, and nothing is left running.
//   DTRUN_CHAOS_SEED=N     plays the rounds of that seed again (it is printed)
//   DTRUN_CHAOS_ONLY=N     only that round
//   DTRUN_CHAOS_ROUNDS=N   how many, instead of 100
#include <doctest/doctest.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <random>
#include <thread>

#include "tests/chaos/round.h"

using namespace dtrun::test;

namespace {

constexpr int kAtOnce = 6;  // most of a round's time is spent waiting

std::uint64_t number_from(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

}  // namespace

TEST_CASE("whoever is killed whenever, the job ends as the contract says and nothing is left running") {
  const std::uint64_t seed = number_from("DTRUN_CHAOS_SEED", std::random_device{}());
  const std::uint64_t only = number_from("DTRUN_CHAOS_ONLY", 0);
  const std::uint64_t rounds = only != 0 ? only : number_from("DTRUN_CHAOS_ROUNDS", 100);
  const std::string model = calm_model();
  std::printf("DTRUN_CHAOS_SEED=%llu\n", static_cast<unsigned long long>(seed));
  std::fflush(stdout);

  std::atomic<std::uint64_t> next{only != 0 ? only : 1};
  std::mutex mutex;  // guards the assertions, so that what they print stays together
  std::vector<std::thread> players;
  for (int i = 0; i < kAtOnce; ++i) {
    players.emplace_back([&] {
      for (std::uint64_t number; (number = next++) <= rounds;) {
        const Plan plan = draw_plan(seed * 1000003 + number, !model.empty());
        const std::string name = std::to_string(seed) + "-" + std::to_string(number);
        const std::string wrong = play(plan, name, model);
        const std::lock_guard lock(mutex);
        CHECK_MESSAGE(wrong.empty(), "DTRUN_CHAOS_SEED=", seed, " DTRUN_CHAOS_ONLY=", number, " (",
                      plan.describe(), "):\n", wrong);
      }
    });
  }
  for (std::thread& player : players) player.join();
}
