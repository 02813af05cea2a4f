// A trained model's file suffices to build the model again with PyTorch: by the code in docs/model.md, as it
// stands.
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/e2e/training.h"
#include "tests/torch/torch_jobs.h"

namespace dtrun::model_test {

using namespace dtrun::test;

namespace {

// The page's blocks of Python: one that loads and tests a chain, and one that makes a model of one's own of
// its file.
std::vector<std::string> blocks_of_page() {
  const std::string begin = "```python\n", text = read_text(DTRUN_SOURCE_DIR "/docs/model.md");
  std::vector<std::string> blocks;
  for (std::size_t at = 0; (at = text.find(begin, at)) != text.npos;) {
    at += begin.size();
    blocks.push_back(text.substr(at, text.find("```", at) - at));
  }
  return blocks;
}

// The first block with the second in place of what makes a chain.
std::string for_own_model() {
  const std::vector<std::string> blocks = blocks_of_page();
  REQUIRE(blocks.size() == 2);
  const std::size_t begin = blocks[0].find("model = nn.Sequential()"),
                    end = blocks[0].find("model.load_state_dict");
  REQUIRE(end != std::string::npos);
  return blocks[0].substr(0, begin) + blocks[1] + "model.eval()\n" + blocks[0].substr(end);
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

// Trains for a moment, and tests the model that is left with PyTorch by `code_text`.
void check_model(const std::string& code_text, const std::vector<std::string>& model) {
  const std::string python = python_with_torch();
  const Folder folder;
  const auto output = folder.path() / "out";
  Process training_run(training_on_real_images(standalone(2), output, joined({"train.max_steps=60"}, model)));
  REQUIRE_MESSAGE(training_run.wait(kLong) == 0, training_run.err());
  const auto code = folder.path() / "load.py";
  std::ofstream(code) << code_text;
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

}  // namespace

TEST_CASE("PyTorch finds the same loss and accuracy in the model that a training leaves") {
  if (!why_no_torch().empty()) return skip(why_no_torch());
  check_model(blocks_of_page().front(), {});
}

TEST_CASE("and in a model of one's own, with a residual, an input further up, and dropout") {
  if (!why_no_torch().empty()) return skip(why_no_torch());
  check_model(
      for_own_model(),
      {"model.type=layers",
       "model.layers=["
       R"({"MaxPool2d": {"kernel_size": 3, "stride": 2, "padding": 1}, "name": "pool"}, )"
       R"({"Conv2d": {"out_channels": 8, "kernel_size": 3, "stride": 2, "padding": 1, "bias": false}, "name": "narrow"}, "BatchNorm2d", "ReLU", "Flatten", )"
       R"({"Linear": {"out_features": 32}, "name": "left"}, {"LayerNorm": {}}, )"
       R"({"Conv2d": {"out_channels": 4, "kernel_size": 7}, "name": "wide", "input": "pool"}, )"
       R"({"GELU": {"approximate": "tanh"}}, {"AdaptiveAvgPool2d": {"output_size": 1}}, "Flatten", {"Dropout": {"p": 0.1}}, )"
       R"({"Linear": {"out_features": 32}, "name": "right"}, {"add": "6"}, "BatchNorm1d", "ReLU", {"Linear": {}, "name": "out"}])"});
}

}  // namespace dtrun::model_test
