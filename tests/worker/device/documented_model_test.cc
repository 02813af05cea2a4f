// The model that docs/model.md writes as an example: compiled from the page itself, right, and able to learn.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "tests/support/worst.h"
#include "tests/worker/model/programs.h"
#include "tests/worker/model/reference.h"
#include "worker/device/device.h"

namespace dtrun::worker {

Program residual(const ModelConfig& config, const SampleSpec& sample);  // the page's

namespace {

constexpr int kRows = 16;

struct Trained {
  explicit Trained(double dropout)
      : program(residual({.hidden_sizes = {24}, .dropout = dropout}, {.shape = {1, 6, 6}, .classes = 5})),
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

TEST_CASE("the gradient of the page's model is the reference's") {
  Trained model(0.25);
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

TEST_CASE("the page's model learns its samples by heart") {
  Trained model(0);
  const float first = model.loss();
  float last = first;
  for (int step = 0; step < 300; ++step) {
    model.step(0.1f);
    last = model.loss();
  }
  CHECK(first > 1);
  CHECK(last < 0.05f);
}

}  // namespace
}  // namespace dtrun::worker
