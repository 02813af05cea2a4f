// Networks and samples for the tests of the devices: the real model, and shapes that fit no vector or tile.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "worker/core/philox.h"
#include "worker/device/device.h"
#include "worker/model/builder.h"
#include "worker/model/program.h"

namespace dtrun::worker {

// A chain of image layers.
class Chain {
 public:
  Chain(SampleShape input, int classes) : builder_({.shape = input, .classes = classes}) {}
  Chain& conv(int out, int kernel) { return push(builder_.conv(value_, name(), out, kernel)); }
  Chain& linear(int out) { return push(builder_.linear(value_, name(), out)); }
  Chain& relu() { return push(builder_.relu(value_)); }
  Chain& pool(int kernel) { return push(builder_.max_pool(value_, kernel)); }
  Chain& flatten() { return push(builder_.flatten(value_)); }
  Program loss() { return builder_.finish(value_); }

 private:
  Chain& push(Value value) {
    value_ = value;
    return *this;
  }
  std::string name() { return "p" + std::to_string(++count_); }

  ProgramBuilder builder_;
  Value value_ = builder_.input();
  int count_ = 0;
};

inline Program convnet_program(SampleShape shape, const ModelConfig& config) {
  return make_program(config, {.shape = shape, .classes = 7});
}
inline Program convnet_program(SampleShape shape = {1, 28, 28}, int classes = 10) {
  return make_program(ModelConfig{.type = ModelType::kConvnet}, {.shape = shape, .classes = classes});
}

struct NamedProgram {
  std::string name;
  Program program;
};

inline std::vector<NamedProgram> test_programs() {
  return {
      {"convnet", convnet_program()},
      {"convnet for colour images", convnet_program({3, 32, 32})},
      {"convnet of three convolutions, odd heights and widths halved",
       convnet_program({2, 31, 27}, {.type = ModelType::kConvnet, .channels = {6, 17, 9}, .kernel_size = 3})},
      {"odd channels and widths, kernel 3, a rest dropped by the pool",
       Chain({3, 13, 11}, 7).conv(5, 3).relu().pool(2).conv(7, 2).relu().flatten().linear(7).loss()},
      {"pool 3, kernel 7, ReLU after the pool, no ReLU between convolutions", Chain({2, 28, 26}, 5)
                                                                                  .conv(3, 7)
                                                                                  .conv(9, 2)
                                                                                  .pool(3)
                                                                                  .relu()
                                                                                  .flatten()
                                                                                  .linear(19)
                                                                                  .relu()
                                                                                  .linear(5)
                                                                                  .loss()},
      {"kernel 1 and a convolution that leaves one pixel",
       Chain({4, 6, 6}, 3).conv(6, 1).relu().conv(33, 6).relu().flatten().linear(3).loss()},
      {"a pool and a ReLU before any parameter",
       Chain({1, 9, 9}, 4).relu().pool(2).flatten().linear(4).loss()},
  };
}

inline ModelConfig layers_config(std::vector<Layer> layers) {
  return {.type = ModelType::kLayers, .layers = std::move(layers)};
}

inline std::vector<float> random_values(std::uint64_t seed, std::size_t count, float scale = 1) {
  const RandomStream stream(seed, RandomUse::kInit, 1000, 0);
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = (2 * stream.uniform(i) - 1) * scale;
  return values;
}

// A GPT-2 for samples of so many tokens.
inline Program gpt2_program(ModelConfig config, int tokens, int classes) {
  config.type = ModelType::kGpt2;
  return make_program(
      config,
      {.input = SampleSpec::Input::kTokens, .shape = {1, 1, tokens}, .targets = tokens, .classes = classes});
}

inline ModelConfig tiny_gpt2() {
  return {.type = ModelType::kGpt2, .n_layer = 2, .n_head = 2, .n_embd = 8, .n_positions = 7};
}

// Programs that have no layout in groups: no images, or values with several readers.
inline std::vector<NamedProgram> planned_programs() {
  const SampleSpec image{.shape = {2, 3, 5}, .classes = 7};
  ModelConfig mlp{.type = ModelType::kMlp, .hidden_sizes = {19, 11}};
  std::vector<NamedProgram> programs{{"mlp", make_program(mlp, image)}};
  mlp.activation = ActivationType::kGelu, mlp.dropout = 0.25;
  programs.push_back({"mlp with gelu and dropout", make_program(mlp, image)});
  mlp.hidden_sizes = {};
  programs.push_back({"mlp without a hidden layer", make_program(mlp, image)});
  ModelConfig gpt2 = tiny_gpt2();
  programs.push_back({"gpt2", gpt2_program(gpt2, 7, 13)});
  programs.push_back({"gpt2 with fewer tokens than positions", gpt2_program(gpt2, 3, 13)});
  gpt2.vocab_size = 16;
  gpt2.dropout = 0.25;
  programs.push_back({"gpt2 with dropout and a larger vocabulary", gpt2_program(gpt2, 7, 13)});
  gpt2.gradient_checkpointing = true;
  programs.push_back({"gpt2 with dropout and recomputation", gpt2_program(gpt2, 7, 13)});
  programs.push_back(
      {"gpt2 of more than one block of queries",
       gpt2_program({.type = ModelType::kGpt2, .n_layer = 1, .n_head = 3, .n_embd = 12, .n_positions = 150},
                    150, 5)});
  // A residual around a ReLU, an addition of a value to itself, and one whose second input is read again.
  ProgramBuilder net({.shape = {1, 1, 6}, .classes = 4});
  Value x = net.linear(net.input(), "a", 6);
  Value y = net.add(net.relu(x), x);
  y = net.add(y, y);
  Value z = net.gelu(net.linear(y, "b", 6));
  z = net.add(z, net.dropout(y, 0.5));
  z = net.add(net.layer_norm(z, "n"), z);
  programs.push_back({"residuals of all kinds", net.finish(net.linear(z, "c", 4))});
  // Images with a residual, which one average is the first reader of, another one the last.
  ProgramBuilder images({.shape = {2, 5, 6}, .classes = 4});
  x = images.relu(images.conv(images.input(), "a", 4, 2));
  y = images.global_average_pool(x);
  x = images.add(x, images.conv(x, "b", 4, 1));
  z = images.add(images.global_average_pool(x), y);
  programs.push_back({"images with a residual and averages", images.finish(images.linear(z, "c", 4))});
  // Windows with strides and padding that fit and that leave a rest, without biases, smaller than their
  // stride, and that overlap in a pool.
  ProgramBuilder windows({.shape = {3, 9, 12}, .classes = 4});
  x = windows.relu(windows.conv(windows.input(), "a", 5, 3, 2, 1, false));
  y = windows.conv(x, "b", 6, 1, 2, 0, false);
  x = windows.max_pool(windows.relu(windows.conv(x, "c", 6, 3, 1, 1)), 3, 2, 1);
  z = windows.relu(windows.add(x, y));
  x = windows.max_pool(windows.conv(z, "d", 3, 5, 1, 4), 2, 3, 0);
  programs.push_back(
      {"images with strides and padding", windows.finish(windows.linear(windows.flatten(x), "e", 4, false))});
  // Norms of images: in front of a residual and behind it, and the first of all nodes; and one of rows.
  ProgramBuilder norms({.shape = {2, 6, 5}, .classes = 4});
  x = norms.batch_norm(norms.input(), "n", true, 1e-3, 0.3);
  x = norms.relu(norms.batch_norm(norms.conv(x, "a", 5, 3, 1, 1, false), "na", true, 1e-2));
  y = norms.batch_norm(norms.conv(x, "b", 5, 1, 1, 0, false), "nb", true, 1e-2);
  x = norms.batch_norm(norms.add(x, y), "nc", true, 1e-2);
  x = norms.add(norms.relu(x), x);
  x = norms.batch_norm(norms.linear(norms.flatten(x), "c", 7), "nd", false, 0.5);
  programs.push_back({"images and rows with batch norms", norms.finish(norms.linear(x, "d", 4))});
  const ModelConfig resnet{
      .type = ModelType::kResnet, .depths = {1, 2}, .embedding_size = 4, .stem = StemType::kCifar};
  programs.push_back({"resnet", make_program(resnet, {.shape = {3, 7, 8}, .classes = 5})});
  ModelConfig bottlenecks = resnet;
  bottlenecks.layer_type = BlockType::kBottleneck;
  programs.push_back(
      {"resnet of bottlenecks", make_program(bottlenecks, {.shape = {3, 7, 8}, .classes = 5})});
  // Recomputed for its moments alone: backward does not read the norm's output.
  ProgramBuilder again({.shape = {1, 1, 6}, .classes = 4});
  x = again.linear(again.input(), "a", 6);
  again.begin_segment();
  x = again.add(again.layer_norm(x, "n"), x);
  again.end_segments();
  programs.push_back({"a recomputed norm before an addition", again.finish(again.linear(x, "b", 4))});
  // Convolutions side by side, each with a ReLU or none, whose outputs and an earlier one's are added up.
  const Layer relu{.type = LayerType::kReLU};
  const auto conv = [](const std::string& name, int channels, std::optional<std::string> input) {
    return Layer{
        .type = LayerType::kConv2d, .name = name, .input = input, .out_channels = channels, .kernel_size = 3};
  };
  Layer named_relu = relu;
  named_relu.name = "r";
  programs.push_back(
      {"images in branches that meet",
       make_program(layers_config({conv("a", 3, {}),
                                   named_relu,
                                   conv("b", 4, {}),
                                   {.type = LayerType::kMaxPool2d, .name = "p", .kernel_size = 2},
                                   conv("c", 4, "r"),
                                   relu,
                                   {.type = LayerType::kMaxPool2d, .kernel_size = 2},
                                   {.type = LayerType::kAdd, .add = "p"},
                                   {.type = LayerType::kFlatten},
                                   {.type = LayerType::kLinear, .name = "out"}}),
                    {.shape = {2, 9, 11}, .classes = 5})});
  return programs;
}

// Random samples for a program, and its initial parameters.
struct Problem {
  Problem(const Program& program, int samples, std::uint64_t seed = 5)
      : parameters(program.size),
        values(random_values(seed, samples * program.sample.shape.size())),
        tokens(values.size()),
        targets(static_cast<std::size_t>(samples) * program.sample.targets) {
    initialize_parameters(program, seed, parameters);
    for (std::size_t i = 0; i < targets.size(); ++i)
      targets[i] = static_cast<std::int32_t>((i * 7 + 3) % program.sample.classes);
    for (std::size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = static_cast<std::int32_t>((i * i * 5 + i + seed) % program.sample.classes);
  }
  // The first samples.
  Microbatch microbatch(int samples) const {
    return {.samples = samples,
            .values = values.data(),
            .tokens = tokens.data(),
            .targets = targets.data(),
            .key = {.seed = 3, .number = 8}};
  }
  std::vector<float> parameters, values;
  std::vector<std::int32_t> tokens, targets;
};

}  // namespace dtrun::worker
