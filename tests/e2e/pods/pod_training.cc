#include "tests/e2e/pods/pod_training.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/e2e/training.h"

namespace dtrun::test {

std::vector<std::string> training_words(const std::string& nodes, int steps) {
  return {"--nnodes",
          nodes,
          kConfig,
          "launch.nproc_per_node=1",
          "train.eval_steps=0",
          "train.logging_steps=1",
          "train.save_steps=20",
          "train.max_steps=" + std::to_string(steps)};
}

Mark last_step(const std::filesystem::path& output) {
  const std::string text = read_if_there(output / "metrics.jsonl");
  std::istringstream lines(
      text.substr(text.find('\n', text.size() - std::min<std::size_t>(text.size(), 4096)) + 1));
  Mark mark;
  for (std::string line; std::getline(lines, line) && !lines.eof();) {
    const auto event = nlohmann::json::parse(line);
    if (event["event"] == "train") mark = {event["step"], event["world_size"], event["generation"]};
  }
  return mark;
}

void ends_with_the_bytes_of_one_worker(Pods& pods, int steps) {
  constexpr auto kPatience = std::chrono::minutes(10);  // many rounds have many steps
  for (const int index : pods.indices())
    CHECK_MESSAGE(pods.container(index).wait(kPatience) == 0, pods.said());
  const Folder alone;
  Process one(
      training_on_real_images(standalone(1), alone / "out", {"train.max_steps=" + std::to_string(steps)}));
  REQUIRE_MESSAGE(one.wait(kPatience) == 0, one.err());
  CHECK(model(pods.output()) == model(alone / "out"));
}

}  // namespace dtrun::test
