#include "tests/e2e/training.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <sstream>

#include "tests/support/clock.h"

namespace dtrun::test {

std::vector<std::string> training(const std::vector<std::string>& options,
                                  const std::filesystem::path& output,
                                  const std::vector<std::string>& overrides) {
  std::vector<std::string> argv{kDtrun};
  argv.insert(argv.end(), options.begin(), options.end());
  argv.insert(argv.end(),
              {kConfig, "output_dir=" + output.string(), "train.eval_steps=0", "train.logging_steps=1"});
  argv.insert(argv.end(), overrides.begin(), overrides.end());
  return argv;
}

std::vector<std::string> standalone(int workers, int lanes) {
  return {"--standalone", "--nproc_per_node", std::to_string(workers), "--lanes", std::to_string(lanes)};
}

std::string model(const std::filesystem::path& output) {
  std::string bytes = read_if_there(output / "model.safetensors");
  REQUIRE_MESSAGE(bytes.size() > 21840 * sizeof(float), output.string());
  return bytes;
}

const std::string& quiet_model(int steps) {
  static std::map<int, std::string> known;
  std::string& bytes = known[steps];
  if (bytes.empty()) {
    const Folder directory;
    Process alone(training(standalone(1), directory / "out",
                           {"train.max_steps=" + std::to_string(steps), "train.save_steps=1000000"}));
    const Ended ended = alone.end(std::chrono::minutes(5));
    REQUIRE_MESSAGE(ended.exit_code == 0, ended.err);
    bytes = model(directory / "out");
  }
  return bytes;
}

long metrics_lines(const std::filesystem::path& output) {
  std::istringstream lines(read_if_there(output / "metrics.jsonl"));
  long count = 0;
  for (std::string line; std::getline(lines, line);) count += line.find("\"event\":\"train\"") != line.npos;
  return count;
}

bool has_checkpoint(const std::filesystem::path& output) {
  std::error_code error;
  const std::filesystem::directory_iterator entries(output / "checkpoints", error);
  return std::any_of(begin(entries), end(entries),
                     [](const auto& entry) { return entry.path().filename().string().starts_with("step-"); });
}

std::pair<int, std::string> newest_checkpoint(const std::filesystem::path& output) {
  std::filesystem::path newest;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(output / "checkpoints", none))
    if (entry.path().filename().string().starts_with("step-")) newest = std::max(newest, entry.path());
  if (newest.empty()) return {};
  return {std::stoi(newest.filename().string().substr(5)), read_if_there(newest / "model.safetensors")};
}

std::string lost_after_two_seconds() {
  soon(std::chrono::seconds(2));
  return "keep_alive_interval=1,keep_alive_max_attempt=2";
}

nlohmann::json conv3x3(int channels, int stride) {
  return {{"Conv2d",
           {{"out_channels", channels},
            {"kernel_size", 3},
            {"stride", stride},
            {"padding", 1},
            {"bias", false}}}};
}

}  // namespace dtrun::test
