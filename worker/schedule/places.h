// The places of a plan's values in a GPU's memory, and the shapes of the matmuls of linear layers there.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <vector>

#include "worker/schedule/schedule.h"
#include "worker/vector/update.h"

namespace dtrun::worker::schedule {

class Places {
 public:
  Places(const Program& program, const Plan& plan, std::size_t samples, bool bf16)
      : program_(program),
        plan_(plan),
        samples_(samples),
        bf16_(bf16),
        element_(bf16 ? 2 : sizeof(float)),
        value_(&plan.value) {}

  // Sets the places of values: those of forward, or those of backward's recomputation.
  void look_at(const std::vector<std::size_t>& values) { value_ = &values; }

  std::size_t element() const { return element_; }  // bytes
  std::size_t rows(Value value) const { return samples_ * program_.values[value].rows; }
  std::size_t width(Value value) const { return program_.values[value].row.size(); }
  std::size_t count(Value value) const { return rows(value) * width(value); }

  // `offset`: of the plan's arena, in elements.
  Place at(std::size_t offset) const {
    if (offset == kNowhere) return {};
    if (offset == kInput) return {Space::kSamples, 0};
    return {Space::kArena, offset * element_};
  }
  Place moved(Place place, std::size_t elements) const {
    place.offset += elements * element_;
    return place;
  }
  Place value(Value value) const { return at((*value_)[value]); }
  Place kept(Value value) const { return at(plan_.value_again[value]); }  // the place for backward
  Place gradient(Value value) const { return at(plan_.gradient[value]); }
  Place parameter(std::size_t index) const { return {Space::kParameters, offset(index) * sizeof(float)}; }
  // The parameter's copy in the lane's elements.
  Place matrix(std::size_t index) const { return {Space::kMatrices, offset(index) * element_}; }
  Place parameter_gradient(std::size_t index) const {
    return {Space::kGradient, offset(index) * sizeof(float)};
  }

  ByteRange values(const Place& place, std::size_t elements) const { return {place, elements * element_}; }
  static ByteRange floats(const Place& place, std::size_t count) { return {place, count * sizeof(float)}; }
  ByteRange parameter_extent(std::size_t index) const { return floats(parameter(index), size(index)); }
  ByteRange matrix_extent(std::size_t index) const { return values(matrix(index), size(index)); }
  ByteRange gradient_extent(std::size_t index) const {
    return floats(parameter_gradient(index), size(index));
  }
  // The extent of the weight, with the layer's sizes.
  ByteRange matrix_extent(const Linear& l) const { return values(matrix(l.weight), weights_of(l)); }
  ByteRange gradient_extent(const Linear& l) const {
    return floats(parameter_gradient(l.weight), weights_of(l));
  }

  // The layer that makes the logits, with as many outputs as a row of logits has room for, if the flat vector
  // is long enough behind the weight. Tensor cores are slow at odd sizes such as GPT-2's 50257 classes, with
  // any stride (cuBLAS guide, 2.1.11). The loss ignores the additional logits and makes their gradients zero,
  // so the parameters behind the weight, which are multiplied with them, add nothing. The matmul of the
  // weight's gradient overwrites those parameters' gradient with zeros, so it must come before all others of
  // backward.
  Linear with_padded_classes(Linear l) const {
    const std::size_t classes = plan_.logit_width;
    const bool room = offset(l.weight) + classes * l.in_features <= program_.size;
    if (room && !l.bias && !l.in_first) l.out_features = static_cast<int>(classes);
    return l;
  }

  // The alignment of a place. Vectors begin at multiples of 256 bytes, except the gradient, which follows the
  // statistics.
  static int alignment(const Place& place) {
    const std::size_t from =
        place.offset + (place.space == Space::kGradient ? kStatisticsFloats * sizeof(float) : 0);
    return from == 0 ? 256 : std::min(256, 1 << std::countr_zero(from));
  }

  MatmulShape matmul(std::size_t m, std::size_t n, std::size_t k) const {
    return {.m = static_cast<std::int64_t>(m),
            .n = static_cast<std::int64_t>(n),
            .k = static_cast<std::int64_t>(k),
            .bf16 = bf16_};
  }
  // y[m] = x W^T + bias, rows of y `stride` apart.
  MatmulShape forward_product(const Linear& l, std::size_t m, std::size_t stride) const {
    MatmulShape shape = matmul(m, l.out_features, l.in_features);
    shape.b_transposed = !l.in_first;
    shape.a_stride = l.in_features;
    shape.b_stride = l.in_first ? l.out_features : l.in_features;
    shape.c_stride = static_cast<std::int64_t>(stride);
    shape.b_alignment = alignment(matrix(l.weight));
    if (l.bias) {
      shape.epilogue = Epilogue::kBias;
      shape.bias_alignment = alignment(matrix(*l.bias));
    }
    return shape;
  }
  // The gradient of x from that of y, whose m rows are `stride` apart.
  MatmulShape in_gradient_product(const Linear& l, std::size_t m, std::size_t stride, Into into) const {
    MatmulShape shape = matmul(m, l.in_features, l.out_features);
    shape.b_transposed = l.in_first;
    shape.a_stride = static_cast<std::int64_t>(stride);
    shape.b_stride = l.in_first ? l.out_features : l.in_features;
    shape.c_stride = l.in_features;
    shape.b_alignment = alignment(matrix(l.weight));
    shape.add = into == Into::kAdd;
    return shape;
  }
  // The gradient of W, in fp32.
  MatmulShape weight_gradient_product(const Linear& l, std::size_t m, std::size_t stride, bool add) const {
    const std::size_t height = l.in_first ? l.in_features : l.out_features,
                      width = l.in_first ? l.out_features : l.in_features;
    MatmulShape shape = matmul(height, width, m);
    shape.a_transposed = true;
    shape.a_stride = l.in_first ? l.in_features : static_cast<std::int64_t>(stride);
    shape.b_stride = l.in_first ? static_cast<std::int64_t>(stride) : l.in_features;
    shape.c_stride = static_cast<std::int64_t>(width);
    shape.wide = bf16_;
    shape.add = add;
    shape.c_alignment = alignment(parameter_gradient(l.weight));
    return shape;
  }

  // Of a convolution or a pooling.
  ImageShape image(const auto& op, const Node& node) const {
    const SampleShape &from = program_.values[node.in[0]].row, &to = program_.values[node.out].row;
    return {.samples = static_cast<int>(samples_),
            .in_channels = from.channels,
            .height = from.height,
            .width = from.width,
            .out_channels = to.channels,
            .kernel = op.kernel,
            .stride = op.stride,
            .padding = op.padding};
  }

 private:
  std::size_t offset(std::size_t index) const { return program_.parameters[index].offset; }
  std::size_t size(std::size_t index) const { return program_.parameters[index].size; }
  static std::size_t weights_of(const Linear& l) {
    return static_cast<std::size_t>(l.in_features) * static_cast<std::size_t>(l.out_features);
  }

  const Program& program_;
  const Plan& plan_;
  const std::size_t samples_;
  const bool bf16_;
  const std::size_t element_;
  const std::vector<std::size_t>* value_;
};

}  // namespace dtrun::worker::schedule
