// Short runs of the real trainer on the real data set, and their results.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/files.h"
#include "tests/support/folder.h"
#include "tests/support/ports.h"
#include "tests/support/process.h"

namespace dtrun::test {

inline const std::string kConfig = DTRUN_SOURCE_DIR "/configs/fashion_mnist_convnet.json";

// dtrun OPTIONS… CONFIG output_dir=… OVERRIDES…, with a metrics line for every step and no evaluation before
// the end.
std::vector<std::string> training(const std::vector<std::string>& options,
                                  const std::filesystem::path& output,
                                  const std::vector<std::string>& overrides);

// One node with one lane a worker, unless told otherwise.
std::vector<std::string> standalone(int workers, int lanes = 1);

// The final model's bytes; fails the test if there is none.
std::string model(const std::filesystem::path& output);

// The same of so many steps by one worker, without a failure: the result that every other such run must
// equal. It is made the first time.
const std::string& quiet_model(int steps);

// Lines of training steps in metrics.jsonl so far.
long metrics_lines(const std::filesystem::path& output);

// Whether there is a checkpoint to go on from.
bool has_checkpoint(const std::filesystem::path& output);
// The newest one: its step, and the model's bytes; 0 and none if there is none.
std::pair<int, std::string> newest_checkpoint(const std::filesystem::path& output);

// --rdzv_conf by which a node that is silent for two seconds is lost.
std::string lost_after_two_seconds();

// A layer of a model of layers, as in front of a batch norm: without a bias.
nlohmann::json conv3x3(int channels, int stride);

}  // namespace dtrun::test
