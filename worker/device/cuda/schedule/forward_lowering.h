// Forward of a program, from a plan's calls to steps. Neighbouring calls become one step if a kernel or an
// epilogue does both: linear and GELU or ReLU, convolution and ReLU, addition and norm, embedding and
// positions.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "worker/device/cuda/schedule/pass_lowering.h"

namespace dtrun::worker::cuda {

class ForwardLowering : public PassLowering {
 public:
  using PassLowering::PassLowering;

  // `values`, `aux`: the plan's places for these calls.
  void run(const std::vector<Call>& calls, const std::vector<std::size_t>& values,
           const std::vector<std::size_t>& aux) {
    look_at(values);
    aux_ = &aux;
    for (std::size_t i = 0; i < calls.size(); ++i) {
      steps_.begin(calls[i].node, false);
      if (i + 1 < calls.size() && forward_pair(node(calls[i].node), calls[i + 1].node)) {
        ++i;
        continue;
      }
      const Node& here = node(calls[i].node);
      std::visit([&](const auto& op) { forward(op, here); }, here.op);
    }
  }

  // The matmul of a linear layer. If the library cannot do the epilogue, the bias is added apart.
  void multiply(const Linear& l, const Place& in, MatmulShape shape, const Place& out, const Place& aux) {
    const std::size_t rows = static_cast<std::size_t>(shape.m), width = static_cast<std::size_t>(shape.n);
    const std::size_t stride = static_cast<std::size_t>(shape.c_stride);
    const ByteRange all = values(out, rows * stride),
                    row = l.bias ? values(matrix(*l.bias), width) : ByteRange{};
    const bool apart = shape.epilogue == Epilogue::kBias && !abilities_.multiplies(shape);
    if (apart) shape.epilogue = Epilogue::kNone;
    add(Matmul{.shape = shape,
               .a = in,
               .b = matrix(l.weight),
               .c = out,
               .bias = apart ? Place{} : row.place,
               .aux = aux},
        {values(in, rows * l.in_features), matrix_extent(l), apart ? ByteRange{} : row},
        {all, values(aux, rows * stride)});
    if (apart)
      add(AddRow{.rows = rows, .width = width, .stride = stride, .row = row.place, .values = out}, {row, all},
          {all});
  }

 private:
  // Lowers `first` and the node behind it to one step; false if that is not possible.
  bool forward_pair(const Node& first, int next) {
    const Node& second = node(next);
    if (second.in[0] != first.out) return false;
    const auto* const linear = std::get_if<Linear>(&first.op);
    if (linear != nullptr && linear->bias && std::holds_alternative<Gelu>(second.op)) {
      MatmulShape shape = forward_product(*linear, rows(first.out), linear->out_features);
      shape.epilogue = Epilogue::kBiasGelu;
      if (!abilities_.multiplies(shape)) return false;
      multiply_forward(*linear, first, shape, value(second.out), value(first.out));
      return true;
    }
    if (linear != nullptr && linear->bias && std::holds_alternative<Relu>(second.op) &&
        only_reader(first.out)) {
      MatmulShape shape = forward_product(*linear, rows(first.out), linear->out_features);
      shape.epilogue = Epilogue::kBiasRelu;
      if (!abilities_.multiplies(shape)) return false;
      multiply_forward(*linear, first, shape, value(second.out), {});
      return true;
    }
    const auto* const convolution = std::get_if<Conv2d>(&first.op);
    if (convolution != nullptr && std::holds_alternative<Relu>(second.op) && only_reader(first.out)) {
      convolve(*convolution, first, value(second.out), true);
      return true;
    }
    const auto* const norm = std::get_if<LayerNorm>(&second.op);
    if (norm != nullptr && std::holds_alternative<Add>(first.op)) {
      normalize(*norm, next, value(first.in[0]), value(first.in[1]));
      return true;
    }
    const auto* const embedding = std::get_if<Embedding>(&first.op);
    const auto* const positions = std::get_if<AddPositions>(&second.op);
    if (embedding != nullptr && positions != nullptr && only_reader(first.out)) {
      embed(*embedding, matrix(positions->weight), program_.values[second.out].rows, second.out);
      return true;
    }
    return false;
  }
  bool only_reader(Value value) const {
    int readers = 0;
    for (const Node& each : program_.nodes) readers += static_cast<int>(std::ranges::count(each.in, value));
    return readers == 1;
  }

  void multiply_forward(const Linear& l, const Node& at, const MatmulShape& shape, const Place& out,
                        const Place& aux) {
    multiply(l, value(at.in[0]), shape, out, aux);
  }
  void forward(const Linear& l, const Node& at) {
    multiply_forward(l, at, forward_product(l, rows(at.out), l.out_features), value(at.out), {});
  }

  void forward(const Relu&, const Node& at) {
    elementwise(
        {.kind = Kind::kRelu, .count = count(at.out), .first = value(at.in[0]), .out = value(at.out)});
  }
  void forward(const Gelu&, const Node& at) {
    elementwise(
        {.kind = Kind::kGelu, .count = count(at.out), .first = value(at.in[0]), .out = value(at.out)});
  }
  void forward(const Add&, const Node& at) {
    elementwise({.kind = Kind::kAdd,
                 .count = count(at.out),
                 .first = value(at.in[0]),
                 .second = value(at.in[1]),
                 .out = value(at.out)});
  }
  void forward(const Dropout& l, const Node& at) {
    elementwise({.kind = Kind::kDropout,
                 .count = count(at.out),
                 .first = value(at.in[0]),
                 .out = value(at.out),
                 .probability = l.probability});
  }
  void forward(const Flatten&, const Node&) {}        // a view
  void forward(const LogSoftmaxNll&, const Node&) {}  // part of the classifier

  void forward(const LayerNorm& l, const Node&) { normalize(l, steps_.node(), {}, {}); }
  // With `left` and `right`, their sum is computed first, into the norm's input.
  void normalize(const LayerNorm& l, int n, const Place& left, const Place& right) {
    steps_.begin(n, false);
    const Node& at = node(n);
    const Place in = value(at.in[0]), out = value(at.out);
    const Place moments = Places::at((*aux_)[n]);
    const std::size_t size = count(at.out);
    std::vector<ByteRange> writes{values(out, size), floats(moments, 2 * rows(at.out))};
    if (right) writes.push_back(values(in, size));
    const ByteRange read = right ? values(right, size) : values(in, size);
    add(Normalize{.rows = rows(at.out),
                  .width = static_cast<std::size_t>(l.width),
                  .epsilon = l.epsilon,
                  .left = left,
                  .right = right,
                  .in = in,
                  .weight = parameter(l.weight),
                  .bias = parameter(l.bias),
                  .moments = moments,
                  .out = out},
        {values(left, size), read, parameter_extent(l.weight), parameter_extent(l.bias)}, std::move(writes));
  }

  void forward(const Embedding& l, const Node& at) { embed(l, {}, 1, at.out); }
  void embed(const Embedding& l, const Place& position, std::size_t positions, Value out) {
    const auto width = static_cast<std::size_t>(l.width);
    add(Embed{.rows = rows(out),
              .width = width,
              .positions = positions,
              .tokens = {Space::kTokens, 0},
              .weight = matrix(l.weight),
              .position = position,
              .out = value(out)},
        {{{Space::kTokens, 0}, rows(out) * sizeof(std::int32_t)},
         matrix_extent(l.weight),
         values(position, positions * width)},
        {values(value(out), count(out))});
  }
  // Without an embedding in front, positions are added to one sample after the other.
  void forward(const AddPositions& l, const Node& at) {
    const std::size_t size = program_.values[at.out].size();
    for (std::size_t sample = 0; sample < samples_; ++sample)
      elementwise({.kind = Kind::kAdd,
                   .count = size,
                   .first = moved(value(at.in[0]), sample * size),
                   .second = matrix(l.weight),
                   .out = moved(value(at.out), sample * size)});
  }
  void forward(const Attention& l, const Node& at) {
    const Place sums = Places::at((*aux_)[steps_.node()]);
    add(AttentionForward{.samples = samples_,
                         .tokens = static_cast<std::size_t>(program_.values[at.out].rows),
                         .heads = static_cast<std::size_t>(l.heads),
                         .width = static_cast<std::size_t>(l.width),
                         .qkv = value(at.in[0]),
                         .out = value(at.out),
                         .sums = sums},
        {values(value(at.in[0]), count(at.in[0]))},
        {values(value(at.out), count(at.out)), floats(sums, rows(at.out) * l.heads)});
  }

  void forward(const Conv2d& l, const Node& at) { convolve(l, at, value(at.out), false); }
  void convolve(const Conv2d& l, const Node& at, const Place& out, bool relu) {
    add(Convolve{.shape = image(at.in[0], at.out, l.kernel),
                 .in = value(at.in[0]),
                 .weight = matrix(l.weight),
                 .bias = parameter(l.bias),
                 .out = out,
                 .relu = relu},
        {values(value(at.in[0]), count(at.in[0])), matrix_extent(l.weight), parameter_extent(l.bias)},
        {values(out, count(at.out))});
  }
  void forward(const MaxPool2d& l, const Node& at) {
    add(Pool{.shape = image(at.in[0], at.out, l.kernel), .in = value(at.in[0]), .out = value(at.out)},
        {values(value(at.in[0]), count(at.in[0]))}, {values(value(at.out), count(at.out))});
  }

  const std::vector<std::size_t>* aux_ = nullptr;  // of the current calls
};

}  // namespace dtrun::worker::cuda
