// Whole runs on a virtual clock: with crashes, broken and silent connections and failing workers, every run
// comes to its end, everybody alive hears of it, and the invariants hold. The coordinator's answers
// (generations, regroups, seats taken again) are counted against the injected failures. DTRUN_SEED=N runs one
// seed of each.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>

#include "tests/rendezvous/core/run/simulator.h"

namespace dtrun::rendezvous::sim_test {
namespace {

// Nothing comes from nothing, and no generation whose work was given up is the one that succeeds.
void check_against_injected(const SimSettings& settings, const SimResult& result) {
  const Injected& injected = result.injected;
  const int lost_and_back = 2 * (injected.crashes + injected.silences + injected.breaks);
  const int never_at_home = settings.agents * (injected.forgotten + (settings.agents != settings.max_nodes));
  CHECK(result.regroups <= lost_and_back + never_at_home);
  CHECK(result.restarts <= injected.failures);
  CHECK(result.resumed <= result.lost_touch + injected.forgotten_seats);
  if (injected.forgotten > 0) return;  // generations and counts may have been forgotten
  CHECK(result.generations <= 1 + result.restarts + result.regroups);
  if (result.exit_code == 0) CHECK(result.generations > injected.hit);
}

SimResult run(const SimSettings& settings) {
  SimResult result = simulate(settings);
  INFO("seed " << settings.seed << ", " << settings.agents << " agents, " << result.generations
               << " generations, " << result.events << " events, ended at " << result.ended_at << " ms");
  REQUIRE(result.broken == "");
  CHECK(result.over);
  CHECK(result.waiting == 0);
  check_against_injected(settings, result);
  return result;
}

// Sums over all seeds of a case: they show that the case's events happened at all.
struct Sum {
  Injected injected;
  int hit = 0;  // runs in which work was given up
  int succeeded = 0, failed = 0;
  int restarts = 0, regroups = 0, resumed = 0, adopted = 0;

  void add(const SimResult& result) {
    injected.crashes += result.injected.crashes;
    injected.silences += result.injected.silences;
    injected.breaks += result.injected.breaks;
    injected.failures += result.injected.failures;
    injected.forgotten += result.injected.forgotten;
    hit += result.injected.hit > 0;
    succeeded += result.exit_code == 0;
    failed += result.exit_code != 0;
    restarts += result.restarts;
    regroups += result.regroups;
    resumed += result.resumed;
    adopted += result.adopted;
  }
};

// A run that no agent left: every seat whose connection broke was taken again, or still waited at the end.
void check_that_all_came_back(const SimResult& result) {
  CHECK(result.regroups == 0);
  CHECK(result.lost_touch == result.resumed + result.away_at_end);
}

// Messages take 20 ms at most, and so does dialling again: living agents are back well within the grace.
SimSettings prompt(std::uint64_t seed) {
  SimSettings settings;
  settings.seed = seed;
  settings.late_message = settings.late_reconnect = 0;
  return settings;
}

template <typename Body>
void for_seeds(std::uint64_t count, Body body) {
  if (const char* seed = std::getenv("DTRUN_SEED")) return body(std::strtoull(seed, nullptr, 10));
  for (std::uint64_t seed = 1; seed <= count; ++seed) body(seed);
}

SimSettings large(std::uint64_t seed) {
  SimSettings settings;
  settings.seed = seed;
  settings.agents = settings.max_nodes = 10000;
  settings.min_nodes = 9900;
  return settings;
}

}  // namespace

TEST_CASE("an undisturbed run succeeds in one generation, whatever the delays") {
  for_seeds(200, [](std::uint64_t seed) {
    SimSettings settings;
    settings.seed = seed;
    settings.agents = settings.max_nodes = 2 + static_cast<int>(seed % 15);
    const SimResult result = run(settings);
    CHECK(result.exit_code == 0);
    CHECK(result.generations == 1);
    CHECK(result.injected.disturbances() == 0);
    CHECK(result.lost_touch + result.resumed == 0);
  });
}

TEST_CASE("crashes and lost connections delay a run but don't fail it while nodes come back") {
  Sum sum;
  for_seeds(300, [&](std::uint64_t seed) {
    SimSettings settings;
    settings.seed = seed;
    settings.agents = settings.max_nodes = 3 + static_cast<int>(seed % 10);
    settings.min_nodes = 1 + static_cast<int>(seed % 3);
    settings.crashes = static_cast<int>(seed % 6);
    settings.restarted = 1;
    settings.silent_loss = 0.002;
    settings.broken = 0.005;
    const SimResult result = run(settings);
    CHECK(result.exit_code == 0);
    CHECK(result.restarts == 0);
    sum.add(result);
  });
  CHECK(sum.injected.crashes > 100);
  CHECK(sum.injected.silences > 10);
  CHECK(sum.injected.breaks > 10);
  CHECK(sum.hit > 100);  // each was answered: see check_against_injected
  CHECK(sum.regroups >= sum.hit);
  CHECK(sum.resumed > 10);
}

TEST_CASE("workers that outlive generations are waited for by nobody, and all are in it at the end") {
  int restarts = 0, most = 0;
  for_seeds(300, [&](std::uint64_t seed) {
    SimSettings settings;
    settings.seed = seed;
    settings.in_memory_recovery = true;
    settings.least_workers = 1 + static_cast<int>(seed % 3);  // two nodes have three
    settings.agents = settings.max_nodes = 2 + static_cast<int>(seed % 10);
    settings.min_nodes = 1 + static_cast<int>(seed % 2);
    settings.crashes = static_cast<int>(seed % 4);
    settings.restarted = 1;
    settings.broken = 0.005;
    settings.worker_failure = 0.08;
    settings.max_restarts = 1000;
    const SimResult result = simulate(settings);
    CAPTURE(seed);
    REQUIRE(result.broken == "");
    CHECK(result.over);
    CHECK(result.waiting == 0);
    CHECK(result.exit_code == 0);
    restarts += result.restarts;
    most = std::max<int>(most, static_cast<int>(result.generations));
  });
  CHECK(restarts > 100);
  CHECK(most < 200);
}

TEST_CASE("connections that break and are back at once cost no generation") {
  Sum sum;
  for_seeds(200, [&](std::uint64_t seed) {
    SimSettings settings = prompt(seed);
    settings.agents = settings.min_nodes = settings.max_nodes = 2 + static_cast<int>(seed % 10);
    settings.broken = 0.03;
    const SimResult result = run(settings);
    CHECK(result.exit_code == 0);
    CHECK(result.generations == 1);
    check_that_all_came_back(result);
    sum.add(result);
  });
  CHECK(sum.injected.breaks > 100);
  CHECK(sum.resumed > 100);
}

TEST_CASE("nor do they where workers fail at the same time: each restart is one generation with every node") {
  Sum sum;
  for_seeds(200, [&](std::uint64_t seed) {
    SimSettings settings = prompt(seed);
    settings.agents = settings.max_nodes = 2 + static_cast<int>(seed % 10);
    settings.min_nodes = 1;
    settings.max_restarts = 5;
    settings.worker_failure = 0.2;
    settings.work = 60000;  // half a minute at least, so no restart waits
    settings.breaks = 200;
    settings.reconnect = 200;
    const SimResult result = run(settings);
    CHECK(result.generations == 1 + result.restarts);
    check_that_all_came_back(result);
    sum.add(result);
  });
  CHECK(sum.restarts > 100);
  CHECK(sum.resumed > 100);
  CHECK(sum.succeeded > 100);
}

TEST_CASE("a coordinator that forgets everything adopts what its members run, and nobody is restarted") {
  Sum sum;
  for_seeds(200, [&](std::uint64_t seed) {
    SimSettings settings;
    settings.seed = seed;
    settings.agents = settings.min_nodes = settings.max_nodes = 2 + static_cast<int>(seed % 10);
    settings.join_spread = 1;
    settings.coordinator_restarts = 1 + static_cast<int>(seed % 3);
    const SimResult result = run(settings);
    CHECK(result.exit_code == 0);
    CHECK(result.generations == 1);
    CHECK(result.regroups + result.restarts == 0);
    CHECK(result.adopted == (result.injected.forgotten_seats > 0));
    if (result.adopted) CHECK(result.resumed >= settings.agents);
    sum.add(result);
  });
  CHECK(sum.injected.forgotten > 100);
  CHECK(sum.adopted > 100);
}

TEST_CASE("failing workers use up the restarts, and then the first failure's exit code is the job's") {
  for_seeds(200, [](std::uint64_t seed) {
    SimSettings settings;
    settings.seed = seed;
    settings.max_restarts = static_cast<int>(seed % 4);
    settings.worker_failure = 1;
    const SimResult result = run(settings);
    CHECK(result.exit_code == 1);
    CHECK(result.generations == settings.max_restarts + 1);
    CHECK(result.restarts == settings.max_restarts);
    CHECK(result.regroups == 0);
    CHECK(result.injected.failures >= result.generations);
    CHECK(result.injected.hit == result.generations);
  });
}

TEST_CASE("with everything going wrong at once every run still ends") {
  Sum sum;
  for_seeds(400, [&](std::uint64_t seed) {
    SimSettings settings;
    settings.seed = seed;
    settings.agents = 2 + static_cast<int>(seed % 12);
    settings.max_nodes =
        1 + static_cast<int>(seed % 11);  // sometimes with nodes that wait, sometimes never full
    settings.min_nodes = 1 + static_cast<int>(seed % static_cast<std::uint64_t>(settings.max_nodes));
    settings.crashes = static_cast<int>(seed % 9);
    settings.restarted = 0.5;
    settings.worker_failure = 0.1;
    settings.silent_loss = 0.01;
    settings.broken = 0.02;
    settings.coordinator_restarts = static_cast<int>(seed % 3);
    sum.add(run(settings));
  });
  const Injected& injected = sum.injected;
  for (int happened : {injected.crashes, injected.silences, injected.breaks, injected.failures,
                       injected.forgotten, sum.restarts, sum.regroups, sum.resumed, sum.adopted})
    CHECK(happened > 20);
  CHECK(sum.succeeded > 20);
  CHECK(sum.failed > 20);
}

TEST_CASE("ten thousand agents train undisturbed") {
  const SimResult result = run(large(1));
  CHECK(result.exit_code == 0);
  CHECK(result.generations == 1);
  CHECK(result.injected.disturbances() + result.lost_touch == 0);
}

TEST_CASE("ten thousand agents get through crashes, silence and failing workers") {
  SimSettings settings = large(2);
  settings.crashes = 8;
  settings.restarted = 1;
  settings.silent_loss = 1e-5;
  settings.broken = 4e-5;
  settings.worker_failure = 5e-6;
  settings.max_restarts = 10;
  const SimResult result = run(settings);
  CHECK(result.exit_code == 0);
  CHECK(result.generations > 3);
  CHECK(result.injected.crashes == 8);
  CHECK(result.injected.hit > 0);
  CHECK(result.regroups > 0);
  CHECK(result.injected.silences > 0);
  CHECK(result.resumed > 0);
}

}  // namespace dtrun::rendezvous::sim_test
