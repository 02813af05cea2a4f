// The loss of a row of logits.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/worker/model/programs.h"
#include "worker/device/cpu/planned/kernels.h"

namespace dtrun::loss_test {

using namespace dtrun::worker;

namespace {

constexpr int kClasses = 7, kSamples = 3;
const std::vector<std::int32_t> kLabels{6, 0, 3};

// transformers' LabelSmoother in fp64, summed over the samples.
double loss_of(const std::vector<double>& logits, double smoothing) {
  double loss = 0;
  for (int n = 0; n < kSamples; ++n) {
    const double* row = logits.data() + n * kClasses;
    double sum = 0, mean = 0;
    for (int c = 0; c < kClasses; ++c) sum += std::exp(row[c]);
    for (int c = 0; c < kClasses; ++c) mean -= std::log(std::exp(row[c]) / sum) / kClasses;
    loss += (1 - smoothing) * -std::log(std::exp(row[kLabels[n]]) / sum) + smoothing * mean;
  }
  return loss;
}

}  // namespace

TEST_CASE("a smoothed loss is transformers', and its gradient that of finite differences") {
  for (const float smoothing : {0.0f, 0.1f, 0.5f}) {
    CAPTURE(smoothing);
    std::vector<float> gradient = random_values(3, kSamples * kClasses, 2);  // the logits, until now
    const std::vector<double> exact(gradient.begin(), gradient.end());
    double loss = 0;
    for (int n = 0; n < kSamples; ++n) {
      std::int32_t largest = -1;
      loss += planned::kernels().classify(kClasses, kLabels[n], smoothing, true,
                                          gradient.data() + n * kClasses, &largest);
      CHECK(exact[n * kClasses + largest] ==
            *std::max_element(exact.begin() + n * kClasses, exact.begin() + (n + 1) * kClasses));
    }
    CHECK(loss == doctest::Approx(loss_of(exact, smoothing)).epsilon(1e-5));
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      CAPTURE(i);
      std::vector<double> more = exact, less = exact;
      more[i] += 1e-5, less[i] -= 1e-5;
      const double slope = (loss_of(more, smoothing) - loss_of(less, smoothing)) / 2e-5;
      CHECK(std::abs(gradient[i] - slope) < 1e-5);
    }
  }
}

TEST_CASE("one hand-made smoothed loss: two classes, p = 3/4 and 1/4, a tenth smoothed") {
  std::vector<float> gradient{std::log(3.0f), 0};
  std::int32_t largest = -1;
  const float loss = planned::kernels().classify(2, 0, 0.1f, true, gradient.data(), &largest);
  // 0.9 * -log(0.75) + 0.1 * (-log(0.75) - log(0.25)) / 2
  CHECK(loss == doctest::Approx(0.342612688).epsilon(1e-6));
  CHECK(gradient[0] == doctest::Approx(0.75 - 0.95));
  CHECK(gradient[1] == doctest::Approx(0.25 - 0.05));
}

TEST_CASE("a lane smooths the labels in training and in an evaluation") {
  ModelConfig mlp{.type = ModelType::kMlp, .hidden_sizes = {19}};
  for (Program program : {convnet_program(), make_program(mlp, {.shape = {1, 5, 5}, .classes = 10})}) {
    CAPTURE(program.model);
    const Problem problem(program, 8);
    const auto losses = [&] {
      const auto lane = make_cpu_device()->make_lane(program, 8);
      lane->parameters_changed(problem.parameters.data());
      std::vector<float> out(kStatisticsFloats + program.size);
      lane->train(problem.microbatch(8), out.data(), [](int) {});
      lane->stream().wait();
      return std::pair(out[0], lane->evaluate(problem.microbatch(8)).loss);
    };
    const auto [plain, plain_evaluation] = losses();
    CHECK(plain == plain_evaluation);
    program.label_smoothing = 0.3f;
    const auto [smoothed, evaluation] = losses();
    CHECK(evaluation == smoothed);
    CHECK(smoothed != plain);
  }
}

}  // namespace dtrun::loss_test
