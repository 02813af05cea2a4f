// A training in pods: its command, progress and result.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tests/e2e/pods/pods.h"

namespace dtrun::test {

// For `dtrun kubernetes`: a worker in each pod, a metrics line for each step.
std::vector<std::string> training_words(const std::string& nodes, int steps);

// The last training step in the metrics.
struct Mark {
  int step = 0, world_size = 0, generation = 0;
};
Mark last_step(const std::filesystem::path& output);

// All pods end with 0, and the model has the bytes of a training of `steps` steps on one worker.
void ends_with_the_bytes_of_one_worker(Pods& pods, int steps);

}  // namespace dtrun::test
