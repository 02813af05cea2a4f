#include "worker/device/cpu/planned/generator.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace dtrun::worker {

Generator::Generator(const Program& program, std::vector<float> parameters)
    : program_(program), parameters_(std::move(parameters)), past_(program.nodes.size()) {
  if (program.sample.input != SampleSpec::Input::kTokens)
    throw WorkerError(kExitSoftware, "only a program of tokens writes text");
  for (const ValueShape& shape : program_.values) values_.emplace_back(shape.row.size());
  for (std::size_t n = 0; n < program_.nodes.size(); ++n)
    if (const auto* attention = std::get_if<Attention>(&program_.nodes[n].op))
      past_[n] = Buffer(static_cast<std::size_t>(longest()) * 3 * attention->width);
  scores_ = Buffer(static_cast<std::size_t>(longest()));
}

std::span<const float> Generator::next(std::int32_t token) {
  token_ = token;
  for (const Node& node : program_.nodes) std::visit([&](const auto& op) { run(op, node); }, node.op);
  ++size_;
  const Value logits = program_.nodes.back().in[0];
  return {value(logits), values_[logits].size()};
}

void Generator::run(const Linear& l, const Node& node) {
  multiplier_.multiply({.b_transposed = !l.in_first,
                        .m = 1,
                        .n = l.out_features,
                        .k = l.in_features,
                        .a = value(node.in[0]),
                        .a_stride = l.in_features,
                        .b = parameter(l.weight),
                        .b_stride = l.in_first ? l.out_features : l.in_features,
                        .bias = l.bias ? parameter(*l.bias) : nullptr,
                        .c = value(node.out),
                        .c_stride = l.out_features});
}

void Generator::run(const Embedding& l, const Node& node) {
  std::copy_n(parameter(l.weight) + static_cast<std::size_t>(token_) * l.width, l.width, value(node.out));
}

void Generator::run(const AddPositions& l, const Node& node) {
  k_.add(l.width, value(node.in[0]), parameter(l.weight) + static_cast<std::size_t>(size_) * l.width,
         value(node.out));
}

void Generator::run(const LayerNorm& l, const Node& node) {
  float moments[2];
  k_.layer_norm(1, l.width, l.epsilon, value(node.in[0]), parameter(l.weight), parameter(l.bias), moments,
                value(node.out));
}

void Generator::run(const Attention& l, const Node& node) {
  const std::size_t width = l.width, stride = 3 * width, size = width / l.heads, rows = size_ + 1;
  float* const past = past_[&node - program_.nodes.data()].data();
  const float* const row = value(node.in[0]);
  std::copy_n(row, stride, past + size_ * stride);
  const float scale = 1 / std::sqrt(static_cast<float>(size));
  float* const out = value(node.out);
  for (int head = 0; head < l.heads; ++head) {
    const float* const query = row + head * size;
    for (std::size_t r = 0; r < rows; ++r) {
      const float* const key = past + r * stride + width + head * size;
      float sum = 0;
      for (std::size_t i = 0; i < size; ++i) sum += query[i] * key[i];
      scores_.data()[r] = sum * scale;
    }
    k_.causal_softmax(1, rows - 1, rows, rows, scores_.data());
    std::fill_n(out + head * size, size, 0.0f);
    for (std::size_t r = 0; r < rows; ++r) {
      const float* const from = past + r * stride + 2 * width + head * size;
      for (std::size_t i = 0; i < size; ++i) out[head * size + i] += scores_.data()[r] * from[i];
    }
  }
}

void Generator::run(const Relu&, const Node& node) {
  k_.relu(values_[node.out].size(), value(node.in[0]), value(node.out));
}
void Generator::run(const Gelu&, const Node& node) {
  k_.gelu(values_[node.out].size(), value(node.in[0]), value(node.out));
}
void Generator::run(const Dropout&, const Node& node) {
  std::copy_n(value(node.in[0]), values_[node.out].size(), value(node.out));
}
void Generator::run(const Flatten&, const Node& node) {
  std::copy_n(value(node.in[0]), values_[node.out].size(), value(node.out));
}
void Generator::run(const Add&, const Node& node) {
  k_.add(values_[node.out].size(), value(node.in[0]), value(node.in[1]), value(node.out));
}

}  // namespace dtrun::worker
