// The numbers are those of torch 1.13 (torch.optim.SGD and AdamW) for the same gradients and rates.
#include "worker/optim/optimizer.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "worker/vector/arithmetic.h"

namespace dtrun::optimizer_test {

using namespace dtrun::worker;

namespace {

const std::vector<std::vector<float>> kGradients{
    {0.1f, -0.2f, 0.3f, 0.0f}, {0.4f, 0.1f, -0.6f, 1e-4f}, {-0.3f, 0.25f, 0.05f, 2.0f}};
const std::vector<double> kRates{0.1, 0.05, 0.2};

void check_near(const std::vector<float>& values, const std::vector<double>& expected) {
  REQUIRE(values.size() == expected.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    CAPTURE(i);
    CHECK(values[i] == doctest::Approx(expected[i]).epsilon(1e-6));
  }
}

std::vector<OptimizerSlot> zero_slots(const TrainConfig& config, std::size_t size) {
  std::vector<OptimizerSlot> slots;
  for (const std::string& name : slot_names(config)) slots.push_back({name, std::vector<float>(size)});
  return slots;
}

// One update with the gradient of a single sample.
void apply(const TrainConfig& config, std::int64_t step, double learning_rate,
           std::span<const float> gradient, std::vector<float>& parameters,
           std::vector<OptimizerSlot>& slots) {
  std::vector<float> sum(kStatisticsFloats);
  sum[2] = 1;
  sum.insert(sum.end(), gradient.begin(), gradient.end());
  const VectorRange all{0, parameters.size()};
  UpdatedVectors vectors{
      .size = parameters.size(), .parameters = parameters.data(), .slots = {}, .decaying = {&all, 1}};
  for (OptimizerSlot& slot : slots) vectors.slots.push_back(slot.values.data());
  const auto cpu = make_cpu_arithmetic();
  cpu->update(*cpu->make_stream(), update_rule(config, step, learning_rate), sum.data(), vectors, {});
}

TEST_CASE("a checkpoint has the outer step's momentum, and what each local replica's optimizer keeps") {
  TrainConfig config;
  CHECK(slot_names(config) == std::vector<std::string>{"momentum_buffer"});
  config.local_replicas = 2;
  CHECK(slot_names(config) ==
        std::vector<std::string>{"replica_0_momentum_buffer", "replica_1_momentum_buffer"});
  config.outer_momentum = 0.9;
  CHECK(slot_names(config)[0] == "outer_momentum_buffer");
  CHECK(slot_names(config).size() == 3);
}

// Three steps from fixed values; returns what the optimizer kept.
std::vector<OptimizerSlot> check_steps(const TrainConfig& config, const std::vector<double>& expected) {
  std::vector<float> parameters{0.5f, -1.25f, 3.0f, 1e-3f};
  std::vector<OptimizerSlot> slots = zero_slots(config, parameters.size());
  for (std::size_t step = 0; step < kGradients.size(); ++step)
    apply(config, static_cast<std::int64_t>(step), kRates[step], kGradients[step], parameters, slots);
  check_near(parameters, expected);
  return slots;
}

TrainConfig sgd(double momentum, double weight_decay) {
  TrainConfig config;
  config.optim = OptimizerType::kSgd;
  config.momentum = momentum;
  config.weight_decay = weight_decay;
  return config;
}

}  // namespace

TEST_CASE("SGD without momentum keeps no state and steps as PyTorch's") {
  CHECK(check_steps(sgd(0, 0), {0.530000031, -1.28499997, 2.99000001, -0.399004996}).empty());
  check_steps(sgd(0, 0.1), {0.513323486, -1.24208415, 2.88619399, -0.399039567});
}

TEST_CASE("SGD with momentum steps as PyTorch's") {
  const auto plain = check_steps(sgd(0.9, 0), {0.437299997, -1.26160002, 3.03590012, -0.399022996});
  CHECK(plain.at(0).name == "momentum_buffer");
  check_near(plain[0].values, {0.140999973, 0.178000003, -0.246999994, 2.00008988});
  const auto decayed = check_steps(sgd(0.9, 0.1), {0.401678473, -1.17118669, 2.81761408, -0.399095982});
  check_near(decayed[0].values, {0.270732492, -0.153003767, 0.553430021, 2.00035763});
}

// These numbers are torch's formula in fp64.
TEST_CASE("SGD with Nesterov's momentum looks ahead as PyTorch's") {
  TrainConfig config = sgd(0.9, 0);
  config.nesterov = true;
  const auto plain = check_steps(config, {0.47357, -1.29544, 3.02231, -0.7590257});
  check_near(plain.at(0).values, {0.141, 0.178, -0.247, 2.00009});
  config.weight_decay = 0.1;
  const auto decayed = check_steps(config, {0.426565511, -1.17327911, 2.72538105, -0.759124951});
  check_near(decayed.at(0).values, {0.266229575, -0.147522413, 0.5448683, 2.0003551});
}

TEST_CASE("AdamW steps as PyTorch's") {
  TrainConfig config;
  config.optim = OptimizerType::kAdamW;
  const auto plain = check_steps(config, {0.320439517, -1.20451307, 2.96524596, -0.163970038});
  CHECK(plain.at(0).name == "exp_avg");
  CHECK(plain.at(1).name == "exp_avg_sq");
  check_near(plain[0].values, {0.0141000003, 0.0177999996, -0.0247000009, 0.200009003});
  check_near(plain[1].values, {0.000259820052, 0.000112410045, 0.000451960106, 0.00400000019});
  config.weight_decay = 0.1;
  config.adam_beta1 = 0.8;
  config.adam_beta2 = 0.95;
  config.adam_epsilon = 1e-6;
  check_steps(config, {0.317636043, -1.18381929, 2.86953735, -0.174967572});
}

TEST_CASE("an update does not depend on where an element lies in the vector") {
  for (const OptimizerType optim : {OptimizerType::kSgd, OptimizerType::kAdamW}) {
    TrainConfig config = sgd(0.9, 0.01);
    config.optim = optim;
    constexpr std::size_t kSize = 103;  // vector body and tail
    std::vector<float> many(kSize, 0.7f), one(1, 0.7f), gradient(kSize, 0.123f);
    auto of_many = zero_slots(config, kSize), of_one = zero_slots(config, 1);
    for (int step = 0; step < 5; ++step) {
      apply(config, step, 0.01, gradient, many, of_many);
      apply(config, step, 0.01, std::span(gradient).first(1), one, of_one);
    }
    CHECK(std::all_of(many.begin(), many.end(), [&](float value) { return value == one[0]; }));
  }
}

}  // namespace dtrun::optimizer_test
