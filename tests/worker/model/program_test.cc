// The model as data: parameters, buckets, initial values, fingerprint.
#include "worker/model/program.h"

#include <doctest/doctest.h>

#include <cmath>

#include "tests/worker/model/programs.h"
#include "worker/base/error.h"

using namespace dtrun::worker;

namespace {
Program convnet() { return convnet_program(); }
}  // namespace

TEST_CASE("the convnet has the parameters of the PyTorch example, in order and without gaps") {
  const Program program = convnet();
  const std::vector<std::pair<std::string, std::vector<std::int64_t>>> expected{
      {"conv1.weight", {20, 1, 5, 5}},  {"conv1.bias", {20}},
      {"conv2.weight", {20, 20, 5, 5}}, {"conv2.bias", {20}},
      {"fc1.weight", {50, 320}},        {"fc1.bias", {50}},
      {"fc2.weight", {10, 50}},         {"fc2.bias", {10}}};
  REQUIRE(program.parameters.size() == expected.size());
  std::size_t offset = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const Parameter& parameter = program.parameters[i];
    CHECK(parameter.name == expected[i].first);
    CHECK(parameter.shape == expected[i].second);
    CHECK(parameter.offset == offset);
    offset += parameter.size;
  }
  CHECK(program.size == offset);
  CHECK(program.size == 27100);
}

TEST_CASE("buckets cover the gradient from its end, the fully connected layers before the convolutions") {
  const Program program = convnet();
  std::size_t end = program.size;
  for (const VectorRange& bucket : program.buckets) {
    CHECK(bucket.end == end);
    CHECK(bucket.begin < bucket.end);
    end = bucket.begin;
  }
  CHECK(end == 0);
  REQUIRE(program.buckets.size() == 2);
  CHECK(program.buckets[0].begin == program.parameters[4].offset);  // fc1.weight
}

TEST_CASE("a bucket is closed at the first layer with which it has 64 KiB") {
  // fc1 has 16050 parameters and fc2 51 a class: 65424 bytes with six classes, 65628 with seven.
  const Program small = convnet_program({1, 28, 28}, 6), large = convnet_program({1, 28, 28}, 7);
  CHECK(small.buckets[0].begin == small.parameters[2].offset);  // conv2.weight
  CHECK(large.buckets[0].begin == large.parameters[4].offset);  // fc1.weight
}

TEST_CASE("initial values are uniform within 1/sqrt(fan-in), and differ by seed and parameter") {
  const Program program = convnet();
  std::vector<float> flat(program.size), again(program.size), other(program.size);
  initialize_parameters(program, 1, flat);
  initialize_parameters(program, 1, again);
  initialize_parameters(program, 2, other);
  CHECK(flat == again);
  CHECK(flat != other);
  const double fan_in[] = {25, 25, 500, 500, 320, 320, 50, 50};
  for (std::size_t i = 0; i < program.parameters.size(); ++i) {
    const Parameter& p = program.parameters[i];
    CAPTURE(p.name);
    const double bound = 1 / std::sqrt(fan_in[i]);
    double largest = 0, sum = 0;
    for (std::size_t k = 0; k < p.size; ++k) {
      largest = std::max(largest, std::abs(double{flat[p.offset + k]}));
      sum += flat[p.offset + k];
    }
    CHECK(largest <= bound * 1.000001);
    CHECK(largest > bound * 0.7);
    CHECK(std::abs(sum / p.size) < bound * 2 / std::sqrt(p.size));  // over three standard deviations
  }
  CHECK(flat[program.parameters[1].offset] != flat[program.parameters[3].offset]);
}

TEST_CASE("the fingerprint is the sha256 of the values in name order") {
  Program program;
  program.parameters = {{"b", {1}, 0, 1, {}}, {"a", {1}, 1, 1, {}}};
  program.size = 2;
  const std::vector<float> flat{1.0f, 2.0f};
  CHECK(parameters_sha256(program, flat) ==
        "cec62291c7d5e97447562503965c17a32c0c4bdb5696725f2225aa37afc61e28");
}

TEST_CASE("data that does not fit the model is refused, naming the layer") {
  CHECK_THROWS_WITH_AS(
      convnet_program({1, 8, 8}, 10),
      "the data does not fit the model: samples of 1x8x8 are too small for its layer conv2; choose "
      "other data or another model",
      WorkerError);
  CHECK_THROWS_AS(make_program(ModelConfig{.type = "transformer"}, {.shape = {1, 28, 28}, .classes = 10}),
                  WorkerError);
  CHECK_THROWS_AS(convnet_program({1, 28, 28}, 1), WorkerError);
}

TEST_CASE("a network says of itself what PyTorch needs to build it again") {
  Program program = convnet();
  program.input_values = "byte / 255";
  CHECK(description(program) ==
        std::map<std::string, std::string>{
            {"format", "pt"},
            {"model", "convnet"},
            {"layers",
             "conv1=Conv2d(1, 20, 5) -> ReLU() -> MaxPool2d(2) -> conv2=Conv2d(20, 20, 5) -> ReLU() -> "
             "MaxPool2d(2) -> Flatten() -> fc1=Linear(320, 50) -> ReLU() -> fc2=Linear(50, 10) -> "
             "LogSoftmax(1)"},
            {"input_shape", "1x28x28"},
            {"input_values", "byte / 255"}});
}
