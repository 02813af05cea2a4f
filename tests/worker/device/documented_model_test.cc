// The models that docs/model.md has as examples of one's own: as the page has them, right, and able to learn.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/support/files.h"
#include "tests/support/worst.h"
#include "tests/worker/model/programs.h"
#include "tests/worker/model/reference.h"
#include "worker/device/device.h"

namespace dtrun::worker::documented_model_test {
namespace {

constexpr int kRows = 16;

// The page's lists of layers, each a config's "model".
std::vector<std::string> page_models() {
  const std::string page = test::read_text(DTRUN_SOURCE_DIR "/docs/model.md"), begin = "```json\n";
  std::vector<std::string> models;
  for (std::size_t at = 0; (at = page.find(begin, at)) != page.npos;) {
    at += begin.size();
    const std::string block = page.substr(at, page.find("```", at) - at);
    if (test::contains(block, "\"type\": \"layers\"")) models.push_back(block);
  }
  return models;
}

Program program_of(const std::string& model) {
  const std::string config = R"({"output_dir": "o", "data": {"type": "synthetic"}, "model": )" + model + "}";
  const auto parsed = parse_config(config, "docs/model.md", {});
  REQUIRE_MESSAGE(parsed.ok(), parsed.status().message());
  return make_program(parsed.value().model, {.shape = {1, 28, 28}, .classes = 5});
}

struct Trained {
  explicit Trained(const std::string& model)
      : program(program_of(model)),
        problem(program, kRows),
        lane(make_cpu_device()->make_lane(program, kRows)),
        out(kStatisticsFloats + program.size) {}

  // Mean loss, with its gradient in `out`.
  float loss() {
    lane->parameters_changed(problem.parameters.data());
    lane->train(problem.microbatch(kRows), out.data(), [](int) {});
    lane->stream().wait();
    return out[0] / kRows;
  }
  void step(float rate) {
    for (std::size_t i = 0; i < program.size; ++i)
      problem.parameters[i] -= rate * out[kStatisticsFloats + i] / kRows;
  }

  const Program program;
  Problem problem;
  const std::unique_ptr<Lane> lane;
  std::vector<float> out;
};

TEST_CASE("the gradients of the page's models are the reference's") {
  REQUIRE(page_models().size() == 3);
  for (const std::string& text : page_models()) {
    CAPTURE(text);
    Trained model(text);
    model.loss();
    const std::vector<double> parameters(model.problem.parameters.begin(), model.problem.parameters.end());
    const auto right = reference::run(model.program, parameters, model.problem.microbatch(kRows));
    REQUIRE(right.gradient.size() == model.program.size);
    double scale = 0, error = 0;
    for (std::size_t i = 0; i < right.gradient.size(); ++i) {
      scale = std::max(scale, std::abs(right.gradient[i]));
      error = test::worst_of(error, std::abs(model.out[kStatisticsFloats + i] - right.gradient[i]));
    }
    CHECK(scale > 0);
    CHECK(error < 1e-5 * scale);
  }
}

TEST_CASE("the page's models learn their samples by heart") {
  for (const std::string& text : page_models()) {
    CAPTURE(text);
    Trained model(text);
    const float first = model.loss();
    float last = first;
    for (int step = 0; step < 1000 && last > 0.05f; ++step) {
      model.step(0.1f);
      last = model.loss();
    }
    CHECK(first > 1);
    CHECK(last <= 0.05f);
  }
}

}  // namespace
}  // namespace dtrun::worker::documented_model_test
