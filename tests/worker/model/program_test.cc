// The model as data: parameters, buckets, initial values, fingerprint.
#include "worker/model/program.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "tests/worker/model/programs.h"
#include "worker/base/error.h"
#include "worker/model/builder.h"

namespace dtrun::program_test {

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
    CHECK(parameter.decays == parameter.name.ends_with("weight"));
    offset += parameter.size;
  }
  CHECK(program.size == offset);
  CHECK(program.size == 27100);
}

TEST_CASE("a convnet of other channels has as many convolutions, and what they leave over goes into fc1") {
  const Program program =
      convnet_program({3, 33, 31}, {.type = ModelType::kConvnet, .channels = {8, 16, 4}, .kernel_size = 3});
  std::string shapes;
  for (const Parameter& parameter : program.parameters) {
    if (!parameter.name.ends_with(".weight")) continue;
    shapes += parameter.name;
    for (const std::int64_t size : parameter.shape) shapes += " " + std::to_string(size);
    shapes += "; ";
  }
  // 33x31 -> 31x29 -> 15x14 -> 13x12 -> 6x6 -> 4x4 -> 2x2: as PyTorch's MaxPool2d, which drops a rest.
  CHECK(shapes ==
        "conv1.weight 8 3 3 3; conv2.weight 16 8 3 3; conv3.weight 4 16 3 3; fc1.weight 50 16; "
        "fc2.weight 7 50; ");
  CHECK(description(program).at("layers").starts_with(
      "conv1=Conv2d(3, 8, 3) -> ReLU() -> MaxPool2d(2) -> conv2=Conv2d(8, 16, 3) -> ReLU() -> "));
}

TEST_CASE("images that the convolutions use up are refused, with the layer") {
  const ModelConfig config{.type = ModelType::kConvnet, .channels = {8, 8, 8}};
  std::string fault;
  try {
    convnet_program({1, 28, 28}, config);
  } catch (const WorkerError& error) {
    fault = error.what();
  }
  CHECK(fault ==
        "the data does not fit the model: layer conv3: Conv2d needs at least 5x5, and 8x4x4 reaches it, of "
        "samples of "
        "1x28x28; choose other data, another model, or fewer or smaller layers");
}

TEST_CASE("embeddings and matrices decay, biases and layer norms do not") {
  ProgramBuilder builder(
      {.input = SampleSpec::Input::kTokens, .shape = {1, 1, 16}, .targets = 16, .classes = 11});
  Value value = builder.embedding(builder.input(), "wte", 11, 8, NormalInit{0.02f});
  value = builder.add_positions(value, "wpe", 16, NormalInit{0.02f});
  value = builder.layer_norm(value, "ln");
  const Program program = builder.finish(builder.linear(value, "head", 11));
  std::map<std::string, bool> decays;
  for (const Parameter& parameter : program.parameters) decays[parameter.name] = parameter.decays;
  CHECK(decays == std::map<std::string, bool>{{"wte.weight", true},
                                              {"wpe.weight", true},
                                              {"ln.weight", false},
                                              {"ln.bias", false},
                                              {"head.weight", true},
                                              {"head.bias", false}});
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
  CHECK_THROWS_WITH_AS(convnet_program({1, 8, 8}, 10),
                       "the data does not fit the model: layer conv2: Conv2d needs at least 5x5, and 20x2x2 "
                       "reaches it, of samples of "
                       "1x8x8; choose other data, another model, or fewer or smaller layers",
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

TEST_CASE("gpt2 has the names, shapes and order of Hugging Face's files, and its number of parameters") {
  const Program program = gpt2_program({.type = ModelType::kGpt2}, 1024, 50257);
  CHECK(program.size == 124439808);
  CHECK(program.parameters.size() == 2 + 12 * 12 + 2);
  const auto shape_of = [&](const std::string& name) {
    const auto found = std::ranges::find(program.parameters, name, &Parameter::name);
    REQUIRE(found != program.parameters.end());
    return found->shape;
  };
  using Shape = std::vector<std::int64_t>;
  CHECK(shape_of("wte.weight") == Shape{50257, 768});
  CHECK(shape_of("wpe.weight") == Shape{1024, 768});
  CHECK(shape_of("h.11.ln_1.bias") == Shape{768});
  CHECK(shape_of("h.0.attn.c_attn.weight") == Shape{768, 2304});
  CHECK(shape_of("h.0.attn.c_proj.weight") == Shape{768, 768});
  CHECK(shape_of("h.3.mlp.c_fc.weight") == Shape{768, 3072});
  CHECK(shape_of("h.3.mlp.c_proj.bias") == Shape{768});
  CHECK(shape_of("ln_f.weight") == Shape{768});
  // The last bucket has the last final gradient: the tied embedding's.
  CHECK(program.buckets.back().begin == 0);
  CHECK(program.buckets.size() > 8);
  CHECK(program.buckets.size() <= 33);
}

TEST_CASE("normal initial values have their deviation, and are the same on every machine") {
  const Program program =
      gpt2_program({.type = ModelType::kGpt2, .n_layer = 2, .n_head = 2, .n_embd = 64}, 64, 256);
  std::vector<float> flat(program.size);
  initialize_parameters(program, 42, flat);
  for (const Parameter& p : program.parameters) {
    CAPTURE(p.name);
    const std::span<const float> values(flat.data() + p.offset, p.size);
    double sum = 0, squares = 0, largest = 0;
    for (const double value : values) {
      sum += value, squares += value * value;
      largest = std::max(largest, std::abs(value));
    }
    if (p.shape.size() == 1) {
      CHECK(std::ranges::all_of(values, [&](float v) { return v == values[0]; }));
      CHECK(values[0] ==
            (p.name.ends_with("ln_1.weight") || p.name.ends_with("ln_2.weight") || p.name == "ln_f.weight"));
      continue;
    }
    const double deviation = p.name.ends_with("c_proj.weight") ? 0.01 : 0.02,
                 count = static_cast<double>(p.size);
    CHECK(std::abs(sum / count) < 4 * deviation / std::sqrt(count));
    CHECK(std::sqrt(squares / count) == doctest::Approx(deviation).epsilon(4 / std::sqrt(2 * count)));
    CHECK(largest > 3 * deviation);
    CHECK(largest < 7 * deviation);
  }
  CHECK(parameters_sha256(program, flat) ==
        "a0a9d0f88c1c8157bb9ac718e35b2441189373445f7cf26c20813f1f9b0fee7b");
}

TEST_CASE("a model refuses data of the other kind, and what is too long or has too many tokens") {
  const SampleSpec image{.shape = {1, 28, 28}, .classes = 10};
  CHECK_THROWS_WITH_AS(make_program({.type = ModelType::kGpt2}, image),
                       "the data does not fit the model: gpt2 takes tokens, and the data has values, such as "
                       "images; choose other data or another model",
                       WorkerError);
  CHECK_THROWS_WITH_AS(
      gpt2_program({.type = ModelType::kGpt2, .n_positions = 8}, 9, 5),
      "the data does not fit the model: its samples have 9 tokens, and /model/n_positions is 8; "
      "shorten /data/sequence_length or raise it",
      WorkerError);
  CHECK_THROWS_WITH_AS(
      gpt2_program({.type = ModelType::kGpt2, .n_positions = 8, .vocab_size = 4}, 8, 5),
      "the data does not fit the model: it has 5 different tokens, and /model/vocab_size is 4", WorkerError);
}

namespace {
Program with_batch_norms() {
  return make_program(layers_config({{.type = LayerType::kBatchNorm2d, .name = "n"},
                                     {.type = LayerType::kFlatten},
                                     {.type = LayerType::kLinear, .name = "hidden", .out_features = 5},
                                     {.type = LayerType::kBatchNorm1d, .name = "rows"},
                                     {.type = LayerType::kLinear, .name = "out"}}),
                      {.shape = {2, 3, 3}, .classes = 4});
}
}  // namespace

TEST_CASE("running statistics lie in front of the parameters, in the last bucket") {
  const Program program = with_batch_norms();
  CHECK(program.running == 2 * 2 + 2 * 5);
  std::vector<VectorRange> taken;
  for (const Parameter& parameter : program.parameters) {
    CAPTURE(parameter.name);
    CHECK(parameter.running == (parameter.offset < program.running));
    CHECK(parameter.running == (parameter.name.find("running") != std::string::npos));
    taken.push_back({parameter.offset, parameter.offset + parameter.size});
  }
  std::ranges::sort(taken, {}, &VectorRange::begin);
  std::size_t end = 0;
  for (const VectorRange& range : taken) {
    CHECK(range.begin == end);
    end = range.end;
  }
  CHECK(program.size == end);
  CHECK(program.trained() == end - program.running);
  CHECK(program.buckets.back().begin == 0);
  const std::size_t hidden =
      program.parameters[4].offset;  // of its weight, where the rows' linear layer begins
  CHECK(program.parameters[4].name == "hidden.weight");
  CHECK(hidden == program.running + 4);
  std::vector<float> flat(program.size);
  initialize_parameters(program, 1, flat);
  CHECK(std::vector(flat.begin(), flat.begin() + 4) == std::vector<float>{0, 0, 1, 1});
}

TEST_CASE("a microbatch of one sample is too little for the batch norm of rows, wherever in an epoch it is") {
  const Program program = with_batch_norms();
  TrainConfig train;
  const auto fault = [&](int global, int micro, std::int64_t samples, bool drop_last = false) {
    train.global_batch_size = global, train.micro_batch_size = micro, train.dataloader_drop_last = drop_last;
    return too_few_values(program, train, samples);
  };
  CHECK(fault(8, 1, 80).starts_with("rows.weight: its batch norm would get one value a channel"));
  CHECK(fault(8, 1, 80).ends_with("which leave no sample alone"));  // nothing else would help
  CHECK(fault(9, 4, 90) != "");
  CHECK(fault(8, 4, 81) != "");
  CHECK(fault(8, 4, 85) != "");
  CHECK(fault(8, 4, 85).ends_with(", or train.dataloader_drop_last=true"));
  CHECK(fault(8, 4, 85, true) == "");
  CHECK(fault(8, 4, 1) != "");
  CHECK(fault(8, 4, 86) == "");
  CHECK(fault(8, 8, 80) == "");
  CHECK(too_few_values(convnet(), train, 1) == "");
  train.batch_norm_group = 2;
  CHECK(fault(8, 1, 80) == "");
  CHECK(fault(8, 1, 81).find("from microbatches of one sample") != std::string::npos);
  CHECK(fault(8, 2, 85) != "");
  CHECK(fault(8, 2, 87) == "");
  train.batch_norm_group = 0;
  CHECK(fault(8, 1, 82) == "");
  CHECK(fault(8, 1, 81) != "");
}

}  // namespace dtrun::program_test
