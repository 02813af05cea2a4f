// One round of chaos with real processes: starts the job that a plan names, kills whom it names, waits for
// the end and looks whether anything is left running.
#pragma once

#include <string>

#include "tests/chaos/plan.h"

namespace dtrun::test {

// What was wrong, with the output of all programs; empty if all went as the contract says. `expected_model`:
// the bytes that every finished run of the built-in trainer must leave (see trainer_command). Thread-safe.
std::string play(const Plan& plan, const std::string& name, const std::string& expected_model);

// The bytes of a calm run's model.safetensors; empty where the trainer's data set is missing.
std::string calm_model();

}  // namespace dtrun::test
