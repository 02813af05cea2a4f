// A trained model's file suffices to build the model again with PyTorch: by the code in docs/model.md, as it
// stands.
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/e2e/training.h"
#include "tests/torch/torch_jobs.h"

using namespace dtrun::test;

namespace {

std::string python_of(const std::string& page) {
  const std::string begin = "```python\n", text = read_text(page);
  const std::size_t at = text.find(begin) + begin.size();
  return text.substr(at, text.find("```", at) - at);
}

nlohmann::json last_evaluation(const std::filesystem::path& metrics) {
  nlohmann::json last;
  std::ifstream lines(metrics);
  for (std::string line; std::getline(lines, line);) {
    const auto event = nlohmann::json::parse(line);
    if (event["event"] == "eval") last = event;
  }
  return last;
}

double value(const std::string& text, const std::string& name) {
  const std::size_t at = text.find(name + " ");
  REQUIRE_MESSAGE(at != std::string::npos, text);
  return std::stod(text.substr(at + name.size()));
}

}  // namespace

TEST_CASE("PyTorch finds the same loss and accuracy in the model that a training leaves") {
  if (!why_no_torch().empty()) return skip(why_no_torch());
  const std::string python = python_with_torch();
  const Folder folder;
  const auto output = folder.path() / "out";
  Process training_run(training(standalone(2), output, {"train.max_steps=60"}));
  REQUIRE_MESSAGE(training_run.wait(kLong) == 0, training_run.err());
  const auto code = folder.path() / "load.py";
  std::ofstream(code) << python_of(DTRUN_SOURCE_DIR "/docs/model.md");
  Process load({python, code.string(), (output / "model.safetensors").string(),
                nlohmann::json::parse(read_text(kConfig))["data"]["path"].get<std::string>()},
               {"OMP_NUM_THREADS=1"});
  REQUIRE_MESSAGE(load.wait(kLong) == 0, load.err());
  const auto evaluation = last_evaluation(output / "metrics.jsonl");
  CHECK(std::abs(value(load.out(), "loss") - evaluation["loss"].get<double>()) < 1e-5);
  // One sample on the edge may fall to the other side.
  CHECK(std::abs(value(load.out(), "accuracy") - evaluation["accuracy"].get<double>()) < 2.5e-4);
  CHECK(evaluation["accuracy"].get<double>() > 0.3);
}
