#include "worker/model/builder.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

#include "worker/core/window.h"

namespace dtrun::worker {
namespace {

// A bucket this large hides the latency of its exchange; smaller ones would pay it more often. A large model
// has larger ones, so that their number stays small.
constexpr std::size_t kSmallestBucket = 64 * 1024 / sizeof(float);
constexpr std::size_t kMostBuckets = 32;

UniformInit torch_default(std::size_t weight_size, int out_features) {
  const double fan_in = static_cast<double>(weight_size) / static_cast<double>(out_features);
  return {static_cast<float>(1.0 / std::sqrt(fan_in))};
}

// Cuts from the end of the flat vector to its front, where backward has completed a node's parameters and
// everything behind them.
std::vector<VectorRange> cut_buckets(const Program& program) {
  const std::size_t smallest = std::max(kSmallestBucket, program.size / kMostBuckets);
  std::vector<VectorRange> buckets;
  std::size_t end = program.size;
  for (auto node = program.nodes.rbegin(); node != program.nodes.rend(); ++node) {
    const std::vector<std::size_t> parameters = parameters_of(node->op);
    if (parameters.empty()) continue;
    const std::size_t begin = program.parameters[parameters.front()].offset;
    if (begin >= end || (end - begin < smallest && begin != program.running)) continue;
    const bool read_before = std::any_of(program.nodes.begin(), node.base() - 1, [&](const Node& earlier) {
      const std::vector<std::size_t> theirs = parameters_of(earlier.op);
      return !theirs.empty() && program.parameters[theirs.back()].offset >= begin;
    });
    if (read_before) continue;
    buckets.push_back({begin, end});
    end = begin;
  }
  buckets.back().begin = 0;
  return buckets;
}

}  // namespace

ProgramBuilder::ProgramBuilder(const SampleSpec& sample) {
  program_.sample = sample;
  const bool tokens = sample.input == SampleSpec::Input::kTokens;
  program_.values.push_back(tokens
                                ? ValueShape{.rows = static_cast<int>(sample.shape.size()), .row = {1, 1, 1}}
                                : ValueShape{.rows = 1, .row = sample.shape});
}

Value ProgramBuilder::conv(Value in, const std::string& name, int out_channels, int kernel, int stride,
                           int padding, bool bias) {
  const SampleShape shape = row(in);
  const std::size_t size = static_cast<std::size_t>(out_channels) * shape.channels * kernel * kernel;
  const Init init = torch_default(size, out_channels);
  const std::size_t weight =
      add_parameter(name + ".weight", {out_channels, shape.channels, kernel, kernel}, init);
  return push(
      Conv2d{.in_channels = shape.channels,
             .out_channels = out_channels,
             .kernel = kernel,
             .weight = weight,
             .bias = bias ? std::optional(add_parameter(name + ".bias", {out_channels}, init)) : std::nullopt,
             .stride = stride,
             .padding = padding},
      in,
      {out_channels, window_places(shape.height, kernel, stride, padding),
       window_places(shape.width, kernel, stride, padding)});
}

Value ProgramBuilder::max_pool(Value in, int kernel, int stride, int padding) {
  const SampleShape shape = row(in);
  return push(MaxPool2d{kernel, stride, padding}, in,
              {shape.channels, window_places(shape.height, kernel, stride, padding),
               window_places(shape.width, kernel, stride, padding)});
}

Value ProgramBuilder::global_average_pool(Value in) {
  return push(GlobalAveragePool{}, in, {row(in).channels, 1, 1});
}

Value ProgramBuilder::flatten(Value in) {
  return push(Flatten{}, in, {static_cast<int>(row(in).size()), 1, 1});
}

Value ProgramBuilder::linear(Value in, const std::string& name, int out_features, bool bias) {
  const int in_features = static_cast<int>(row(in).size());
  const Init init = torch_default(static_cast<std::size_t>(out_features) * in_features, out_features);
  const std::size_t weight = add_parameter(name + ".weight", {out_features, in_features}, init);
  return push(Linear{.in_features = in_features,
                     .out_features = out_features,
                     .weight = weight,
                     .bias = bias ? std::optional(add_parameter(name + ".bias", {out_features}, init))
                                  : std::nullopt},
              in, {out_features, 1, 1});
}

Value ProgramBuilder::conv1d(Value in, const std::string& name, int out_features, Init init) {
  const int in_features = static_cast<int>(row(in).size());
  const std::size_t weight = add_parameter(name + ".weight", {in_features, out_features}, init);
  const std::size_t bias = add_parameter(name + ".bias", {out_features}, ConstantInit{0});
  return push(Linear{.in_features = in_features,
                     .out_features = out_features,
                     .weight = weight,
                     .bias = bias,
                     .in_first = true},
              in, {out_features, 1, 1});
}

Value ProgramBuilder::tied_linear(Value in, std::size_t weight) {
  const std::vector<std::int64_t>& shape = program_.parameters[weight].shape;
  const int out_features = static_cast<int>(shape[0]);
  return push(Linear{.in_features = static_cast<int>(shape[1]),
                     .out_features = out_features,
                     .weight = weight,
                     .bias = {}},
              in, {out_features, 1, 1});
}

Value ProgramBuilder::relu(Value in) { return push(Relu{}, in, row(in)); }
Value ProgramBuilder::gelu(Value in) { return push(Gelu{}, in, row(in)); }

Value ProgramBuilder::layer_norm(Value in, const std::string& name) {
  const int width = static_cast<int>(row(in).size());
  const std::size_t weight = add_parameter(name + ".weight", {width}, ConstantInit{1});
  const std::size_t bias = add_parameter(name + ".bias", {width}, ConstantInit{0});
  return push(LayerNorm{.width = width, .weight = weight, .bias = bias}, in, row(in));
}

Value ProgramBuilder::batch_norm(Value in, const std::string& name, bool images, double epsilon,
                                 double momentum) {
  const int channels = row(in).channels;
  const std::size_t weight = add_parameter(name + ".weight", {channels}, ConstantInit{1});
  const std::size_t bias = add_parameter(name + ".bias", {channels}, ConstantInit{0});
  const std::size_t mean = add_parameter(name + ".running_mean", {channels}, ConstantInit{0}, true);
  const std::size_t variance = add_parameter(name + ".running_var", {channels}, ConstantInit{1}, true);
  return push(BatchNorm{.channels = channels,
                        .weight = weight,
                        .bias = bias,
                        .mean = mean,
                        .variance = variance,
                        .images = images,
                        .epsilon = epsilon,
                        .momentum = momentum},
              in, row(in));
}

Value ProgramBuilder::embedding(Value in, const std::string& name, int classes, int width, Init init) {
  const std::size_t weight = add_parameter(name + ".weight", {classes, width}, init);
  return push(Embedding{.classes = classes, .width = width, .weight = weight}, in, {width, 1, 1});
}

Value ProgramBuilder::add_positions(Value in, const std::string& name, int positions, Init init) {
  const int width = static_cast<int>(row(in).size());
  const std::size_t weight = add_parameter(name + ".weight", {positions, width}, init);
  return push(AddPositions{.positions = positions, .width = width, .weight = weight}, in, row(in));
}

Value ProgramBuilder::attention(Value in, int heads) {
  const int width = static_cast<int>(row(in).size()) / 3;
  return push(Attention{.heads = heads, .width = width}, in, {width, 1, 1});
}

Value ProgramBuilder::dropout(Value in, double probability) {
  return probability > 0 ? push(Dropout{static_cast<float>(probability)}, in, row(in)) : in;
}

Value ProgramBuilder::add(Value left, Value right) {
  return push(Add{}, {left, right}, program_.values[left]);
}

std::size_t ProgramBuilder::parameter(const std::string& name) const {
  const auto found = std::ranges::find(program_.parameters, name, &Parameter::name);
  return static_cast<std::size_t>(found - program_.parameters.begin());
}

Program ProgramBuilder::finish(Value logits) {
  push(LogSoftmaxNll{static_cast<int>(row(logits).size())}, logits, {1, 1, 1});
  for (Parameter& parameter : program_.parameters)
    if (!parameter.running) parameter.offset += program_.running;
  program_.size += program_.running;
  program_.buckets = cut_buckets(program_);
  return std::move(program_);
}

// Running statistics have a count of their own: finish() puts them in front.
std::size_t ProgramBuilder::add_parameter(std::string name, std::vector<std::int64_t> shape, Init init,
                                          bool running) {
  const auto size = static_cast<std::size_t>(
      std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>()));
  const bool decays = shape.size() >= 2;
  program_.parameters.push_back({.name = std::move(name),
                                 .shape = std::move(shape),
                                 .offset = running ? program_.running : program_.size,
                                 .size = size,
                                 .init = init,
                                 .decays = decays,
                                 .running = running});
  (running ? program_.running : program_.size) += size;
  return program_.parameters.size() - 1;
}

Value ProgramBuilder::push(const Op& op, std::array<Value, 2> in, ValueShape out) {
  program_.values.push_back(out);
  const Value value = static_cast<Value>(program_.values.size()) - 1;
  program_.nodes.push_back({.op = op, .in = in, .out = value, .segment = segment_});
  return value;
}

Value ProgramBuilder::push(const Op& op, Value in, SampleShape out_row) {
  return push(op, {in, kNoValue}, {.rows = program_.values[in].rows, .row = out_row});
}

}  // namespace dtrun::worker
