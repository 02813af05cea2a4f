#include "tests/chaos/rounds.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/chaos/round.h"

namespace dtrun::test {
namespace {

struct Tally {
  int rounds = 0, saw_agents = 0;
  int aimed_at_worker = 0, saw_workers = 0, met_worker = 0;

  void add(const Plan& plan, const Played& played) {
    ++rounds;
    saw_agents += played.saw_agents;
    if (plan.victim != Victim::kWorker) return;
    ++aimed_at_worker;
    saw_workers += played.saw_workers;
    met_worker += played.met_worker;
  }

  // A trainer may end before it is looked for, and a worker before it is met, but not most of them.
  void check(bool builtin) const {
    std::printf("%d rounds, agents found in %d; %d aimed at a worker, found in %d, met in %d\n", rounds,
                saw_agents, aimed_at_worker, saw_workers, met_worker);
    CHECK(rounds - saw_agents <= (builtin ? std::max(1, rounds / 4) : 0));
    CHECK(aimed_at_worker - saw_workers <= (builtin ? std::max(1, aimed_at_worker / 4) : 0));
    constexpr int kByChance = 8;  // few rounds may all miss
    CHECK(4 * met_worker >= aimed_at_worker - kByChance);
  }
};

std::uint64_t number_from(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

}  // namespace

void play_rounds(bool builtin, std::uint64_t rounds, int at_once) {
  const std::uint64_t seed = number_from("DTRUN_CHAOS_SEED", std::random_device{}());
  const std::uint64_t only = number_from("DTRUN_CHAOS_ONLY", 0);
  const std::uint64_t last = only != 0 ? only : number_from("DTRUN_CHAOS_ROUNDS", rounds);
  const std::string model = builtin ? calm_model() : "";
  std::printf("DTRUN_CHAOS_SEED=%llu\n", static_cast<unsigned long long>(seed));
  std::fflush(stdout);

  std::atomic<std::uint64_t> next{only != 0 ? only : 1};
  std::mutex mutex;  // guards the tally, and the assertions, so that what they print stays together
  Tally tally;
  std::vector<std::thread> players;
  for (int i = 0; i < at_once; ++i) {
    players.emplace_back([&] {
      for (std::uint64_t number; (number = next++) <= last;) {
        const Plan plan = draw_plan(seed * 1000003 + number, builtin);
        const Played played = play(plan, std::to_string(seed) + "-" + std::to_string(number), model);
        const std::lock_guard lock(mutex);
        tally.add(plan, played);
        CHECK_MESSAGE(played.wrong.empty(), "DTRUN_CHAOS_SEED=", seed, " DTRUN_CHAOS_ONLY=", number, " (",
                      plan.describe(), "):\n", played.wrong);
      }
    });
  }
  for (std::thread& player : players) player.join();
  tally.check(builtin);
}

}  // namespace dtrun::test
