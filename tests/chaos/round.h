// One round of chaos with real processes: starts a plan's job, kills the plan's victims, waits for the end
// and checks that nothing is left running. The same search finds the agents and workers while they run, so
// that one that finds nothing is noticed.
#pragma once

#include <string>

#include "tests/chaos/plan.h"

namespace dtrun::test {

struct Played {
  std::string wrong;         // with the output of all programs; empty if all went as the contract says
  bool saw_agents = false;   // found each agent in /proc before it ended,
  bool saw_workers = false;  // and workers, where one is the victim
  bool met_worker = false;   // an agent reports a worker that was killed by SIGKILL
};

// `expected_model`: the bytes that every finished run of the built-in trainer must leave. Thread-safe.
Played play(const Plan& plan, const std::string& name, const std::string& expected_model);

// The bytes of model.safetensors after a calm run of the built-in trainer. REQUIRES: its data set is there.
std::string calm_model();
bool has_trainer_data();

}  // namespace dtrun::test
