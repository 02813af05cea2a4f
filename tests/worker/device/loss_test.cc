#include "worker/device/cpu/loss.h"

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "tests/worker/model/programs.h"

using namespace dtrun::worker;

namespace {

constexpr int kClasses = 7, kRows = 4, kSamples = 3;
const std::vector<std::int32_t> kLabels{6, 0, 3, 0};

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
    const std::vector<float> logits = random_values(3, kRows * kClasses, 2);
    const std::vector<double> exact(logits.begin(), logits.end());
    std::vector<float> gradient(logits.size(), 9.0f);
    const MicrobatchStats stats =
        log_softmax_nll(logits, kClasses, kLabels.data(), kSamples, gradient, smoothing);
    CHECK(stats.loss == doctest::Approx(loss_of(exact, smoothing)).epsilon(1e-5));
    for (std::size_t i = 0; i < logits.size(); ++i) {
      CAPTURE(i);
      std::vector<double> more = exact, less = exact;
      more[i] += 1e-5, less[i] -= 1e-5;
      const double slope = (loss_of(more, smoothing) - loss_of(less, smoothing)) / 2e-5;
      CHECK(std::abs(gradient[i] - slope) < 1e-5);
    }
  }
}

TEST_CASE("one hand-made smoothed loss: two classes, p = 3/4 and 1/4, a tenth smoothed") {
  const std::vector<float> logits{std::log(3.0f), 0};
  const std::int32_t label = 0;
  std::vector<float> gradient(2);
  const float loss = log_softmax_nll(logits, 2, &label, 1, gradient, 0.1f).loss;
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
