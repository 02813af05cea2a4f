// Whole runs on a virtual clock: with crashes, broken and silent connections and failing workers, every run
// comes to its end, everybody alive hears of it, and the invariants hold. DTRUN_SEED=N runs one seed of each.
#include <doctest/doctest.h>

#include <cstdlib>

#include "tests/rendezvous/simulator.h"

namespace dtrun::rendezvous {
namespace {

SimResult run(const SimSettings& settings) {
  SimResult result = simulate(settings);
  INFO("seed " << settings.seed << ", " << settings.agents << " agents, " << result.generations
               << " generations, " << result.events << " events, ended at " << result.ended_at << " ms");
  REQUIRE(result.broken == "");
  CHECK(result.over);
  CHECK(result.waiting == 0);
  return result;
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
  });
}

TEST_CASE("crashes and lost connections delay a run but don't fail it while nodes come back") {
  for_seeds(300, [](std::uint64_t seed) {
    SimSettings settings;
    settings.seed = seed;
    settings.agents = settings.max_nodes = 3 + static_cast<int>(seed % 10);
    settings.min_nodes = 1 + static_cast<int>(seed % 3);
    settings.crashes = static_cast<int>(seed % 6);
    settings.restarted = 1;
    settings.silent_loss = 0.002;
    settings.broken = 0.005;
    CHECK(run(settings).exit_code == 0);
  });
}

TEST_CASE("connections that break and are back at once cost no generation") {
  for_seeds(200, [](std::uint64_t seed) {
    SimSettings settings;
    settings.seed = seed;
    settings.agents = settings.min_nodes = settings.max_nodes = 2 + static_cast<int>(seed % 10);
    settings.broken = 0.03;
    const SimResult result = run(settings);
    CHECK(result.exit_code == 0);
    CHECK(result.restarts == 0);
  });
}

TEST_CASE("a coordinator that forgets everything adopts what its members run, and nobody is restarted") {
  int adopted = 0;
  for_seeds(200, [&](std::uint64_t seed) {
    SimSettings settings;
    settings.seed = seed;
    settings.agents = settings.min_nodes = settings.max_nodes = 2 + static_cast<int>(seed % 10);
    settings.join_spread = 1;
    settings.coordinator_restarts = 1 + static_cast<int>(seed % 3);
    const SimResult result = run(settings);
    CHECK(result.exit_code == 0);
    CHECK(result.generations == 1);
    adopted += result.resumed > 0;
  });
  CHECK(adopted > 0);
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
  });
}

TEST_CASE("with everything going wrong at once every run still ends") {
  for_seeds(400, [](std::uint64_t seed) {
    SimSettings settings;
    settings.seed = seed;
    settings.agents = 2 + static_cast<int>(seed % 12);
    settings.max_nodes = 1 + static_cast<int>(seed % 11);  // sometimes spares, sometimes never full
    settings.min_nodes = 1 + static_cast<int>(seed % static_cast<std::uint64_t>(settings.max_nodes));
    settings.crashes = static_cast<int>(seed % 9);
    settings.restarted = 0.5;
    settings.worker_failure = 0.1;
    settings.silent_loss = 0.01;
    settings.broken = 0.02;
    settings.coordinator_restarts = static_cast<int>(seed % 3);
    run(settings);
  });
}

TEST_CASE("ten thousand agents train undisturbed") {
  const SimResult result = run(large(1));
  CHECK(result.exit_code == 0);
  CHECK(result.generations == 1);
}

TEST_CASE("ten thousand agents get through crashes, silence and failing workers") {
  SimSettings settings = large(2);
  settings.crashes = 8;
  settings.restarted = 1;
  settings.silent_loss = 2e-6;
  settings.broken = 4e-6;
  settings.worker_failure = 5e-6;
  settings.max_restarts = 10;
  const SimResult result = run(settings);
  CHECK(result.exit_code == 0);
  CHECK(result.generations > 3);
}

}  // namespace dtrun::rendezvous
