// The operations of a program, from a plan's calls to steps: each operation's forward beside its backward.
// Neighbouring calls become one step if a kernel or an epilogue does both: linear and GELU or ReLU,
// convolution and ReLU, addition and norm, embedding and positions; in backward a linear layer's input
// gradient and GELU's.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "proto/core/exit_codes.h"
#include "worker/base/error.h"
#include "worker/schedule/places.h"
#include "worker/schedule/schedule.h"
#include "worker/schedule/step_list.h"

namespace dtrun::worker::schedule {

class OpLowering : public Places {
 public:
  // All references must outlive this. Adds to `steps`.
  OpLowering(const Program& program, const Plan& plan, std::size_t samples, const Abilities& abilities,
             StepList& steps)
      : Places(program, plan, samples, abilities.bf16),
        program_(program),
        plan_(plan),
        samples_(samples),
        abilities_(abilities),
        steps_(steps) {}

  // `values`, `aux`: the plan's places for these calls.
  // `again`: the calls recompute a segment.
  void run(const std::vector<Call>& calls, const std::vector<std::size_t>& values,
           const std::vector<std::size_t>& aux, bool again) {
    look_at(values);
    aux_ = &aux, again_ = again;
    for (std::size_t i = 0; i < calls.size(); ++i) {
      steps_.begin(calls[i].node, false, again);
      if (i + 1 < calls.size() && forward_pair(node(calls[i].node), calls[i + 1].node)) {
        ++i;
        continue;
      }
      const Node& here = node(calls[i].node);
      std::visit([&](const auto& op) { forward(op, here); }, here.op);
    }
  }

  // Lowers both calls to one step; false if that is not possible.
  bool run_pair(const Call& first, const Call& second) {
    const Node &lower = node(second.node), &upper = node(first.node);
    if (abilities_.pools_with_relu && std::holds_alternative<MaxPool2d>(upper.op) && second.backward &&
        std::holds_alternative<Relu>(lower.op) && lower.out == upper.in[0] && first.in[0] == Into::kWrite &&
        second.in[0] == Into::kShare) {
      steps_.begin(first.node, true);
      pool_backward(std::get<MaxPool2d>(upper.op), upper, first, true);
      return true;
    }
    const auto* const linear = std::get_if<Linear>(&upper.op);
    const bool fits = linear != nullptr && second.backward && std::holds_alternative<Gelu>(lower.op) &&
                      lower.out == upper.in[0] && first.in[0] == Into::kWrite && second.in[0] == Into::kShare;
    if (!fits) return false;
    const std::size_t m = rows(upper.out);
    MatmulShape shape = in_gradient_product(*linear, m, linear->out_features, Into::kWrite);
    shape.epilogue = Epilogue::kGeluGradient;
    if (!abilities_.multiplies(shape)) return false;
    steps_.begin(first.node, true);
    linear_backward(*linear, m, kept(upper.in[0]), gradient(upper.out), linear->out_features,
                    first.parameters == Into::kAdd, Into::kWrite, gradient(upper.in[0]), kept(lower.in[0]));
    return true;
  }

  void run(const Call& call) {
    steps_.begin(call.node, true);
    const Node& at = node(call.node);
    std::visit([&](const auto& op) { backward(op, at, call); }, at.op);
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

  // The whole backward for m rows. `slope`: GELU's input, if GELU's backward is part of the step.
  void linear_backward(const Linear& l, std::size_t m, const Place& x, const Place& d, std::size_t stride,
                       bool add_parameters, Into into, const Place& d_in, const Place& slope) {
    // On a stream of its own it begins first. On the same one the input's gradient is needed sooner.
    const bool first = abilities_.side_streams > 0;
    if (first) weight_gradient(l, m, x, d, stride, add_parameters);
    if (into != Into::kNone) in_gradient(l, m, d, stride, into, d_in, slope);
    if (!first) weight_gradient(l, m, x, d, stride, add_parameters);
  }

 private:
  using Kind = Elementwise::Kind;

  void in_gradient(const Linear& l, std::size_t m, const Place& d, std::size_t stride, Into into,
                   const Place& d_in, const Place& slope) {
    MatmulShape shape = in_gradient_product(l, m, stride, into);
    if (slope) shape.epilogue = Epilogue::kGeluGradient;
    const ByteRange out = values(d_in, m * l.in_features);
    std::vector<ByteRange> reads{values(d, m * stride), matrix_extent(l), values(slope, m * l.in_features)};
    if (shape.add) reads.push_back(out);
    add(Matmul{.shape = shape, .a = d, .b = matrix(l.weight), .c = d_in, .bias = {}, .aux = slope},
        std::move(reads), {out});
  }

  const Node& node(int n) const { return program_.nodes[n]; }

  void add(const Work& work, std::vector<ByteRange> reads, std::vector<ByteRange> writes, int stream = 0) {
    steps_.add(work, std::move(reads), std::move(writes), stream);
  }

  void elementwise(Elementwise work) {
    const std::size_t size = work.count;
    std::vector<ByteRange> reads{values(work.first, size), values(work.second, size)};
    if (work.add) reads.push_back(values(work.out, size));
    const ByteRange out = values(work.out, size);
    add(work, std::move(reads), {out});
  }

  void gradient_elementwise(Kind kind, const Node& at, const Call& call, const Place& second,
                            float probability = 0) {
    elementwise({.kind = kind,
                 .count = count(at.out),
                 .first = gradient(at.out),
                 .second = second,
                 .out = gradient(at.in[0]),
                 .add = call.in[0] == Into::kAdd,
                 .probability = probability});
  }

  // The input's gradient equals the output's.
  void pass_on(const Node& at, int k, Into into) {
    if (into != Into::kWrite && into != Into::kAdd) return;
    elementwise({.kind = Kind::kCopy,
                 .count = count(at.out),
                 .first = gradient(at.out),
                 .out = gradient(at.in[k]),
                 .add = into == Into::kAdd});
  }

  void clear(const ByteRange& extent) { add(Clear{extent.place, extent.bytes}, {}, {extent}); }

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
  void backward(const Linear& l, const Node& at, const Call& call) {
    linear_backward(l, rows(at.out), kept(at.in[0]), gradient(at.out), l.out_features,
                    call.parameters == Into::kAdd, call.in[0],
                    call.in[0] == Into::kNone ? Place{} : gradient(at.in[0]), {});
  }

  // Runs on a side stream: only the exchange waits for it.
  void weight_gradient(const Linear& l, std::size_t m, const Place& x, const Place& d, std::size_t stride,
                       bool add_to) {
    const int stream = steps_.side_stream();
    const Place to = parameter_gradient(l.weight);
    MatmulShape shape = weight_gradient_product(l, m, stride, add_to);
    const ByteRange x_read = values(x, m * l.in_features), d_read = values(d, m * stride);
    const Place sums = l.bias ? parameter_gradient(*l.bias) : Place{};
    bool sums_too = false;
    if (l.bias && !add_to) {
      MatmulShape with_sums = shape;
      with_sums.epilogue = l.in_first ? Epilogue::kColumnSums : Epilogue::kRowSums;
      with_sums.bias_alignment = alignment(sums);
      sums_too = abilities_.multiplies(with_sums);
      if (sums_too) shape = with_sums;
    }
    std::vector<ByteRange> reads{x_read, d_read}, writes{gradient_extent(l)};
    if (add_to) reads.push_back(gradient_extent(l));
    if (sums_too) writes.push_back(gradient_extent(*l.bias));
    add(Matmul{.shape = shape,
               .a = l.in_first ? x : d,
               .b = l.in_first ? d : x,
               .c = to,
               .bias = sums_too ? sums : Place{},
               .aux = {}},
        std::move(reads), std::move(writes), stream);
    if (!l.bias || sums_too) return;
    reads = {d_read};
    if (add_to) reads.push_back(gradient_extent(*l.bias));
    add(SumRows{.rows = m,
                .width = static_cast<std::size_t>(l.out_features),
                .stride = stride,
                .in = d,
                .out = sums,
                .add = add_to},
        std::move(reads), {gradient_extent(*l.bias)}, stream);
  }

  void forward(const Relu&, const Node& at) {
    elementwise(
        {.kind = Kind::kRelu, .count = count(at.out), .first = value(at.in[0]), .out = value(at.out)});
  }
  void backward(const Relu&, const Node& at, const Call& call) {
    gradient_elementwise(Kind::kReluGradient, at, call, kept(at.out));
  }

  void forward(const Gelu&, const Node& at) {
    elementwise(
        {.kind = Kind::kGelu, .count = count(at.out), .first = value(at.in[0]), .out = value(at.out)});
  }
  void backward(const Gelu&, const Node& at, const Call& call) {
    gradient_elementwise(Kind::kGeluGradient, at, call, kept(at.in[0]));
  }

  void forward(const Dropout& l, const Node& at) {
    elementwise({.kind = Kind::kDropout,
                 .count = count(at.out),
                 .first = value(at.in[0]),
                 .out = value(at.out),
                 .probability = l.probability});
  }
  void backward(const Dropout& l, const Node& at, const Call& call) {
    gradient_elementwise(Kind::kDropout, at, call, {}, l.probability);
  }

  void forward(const Add&, const Node& at) {
    elementwise({.kind = Kind::kAdd,
                 .count = count(at.out),
                 .first = value(at.in[0]),
                 .second = value(at.in[1]),
                 .out = value(at.out)});
  }
  void backward(const Add&, const Node& at, const Call& call) {
    pass_on(at, 0, call.in[0]);
    pass_on(at, 1, call.in[1]);
  }

  void forward(const Flatten&, const Node&) {}  // a view
  void backward(const Flatten&, const Node& at, const Call& call) { pass_on(at, 0, call.in[0]); }

  void forward(const LogSoftmaxNll&, const Node&) {}  // part of the classifier
  void backward(const LogSoftmaxNll&, const Node&, const Call&) {}

  // With `left` and `right`, their sum is computed first, into the norm's input.
  void normalize(const LayerNorm& l, int n, const Place& left, const Place& right) {
    steps_.begin(n, false, again_);
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
  void forward(const LayerNorm& l, const Node&) { normalize(l, steps_.node(), {}, {}); }
  void backward(const LayerNorm& l, const Node& at, const Call& call) {
    const std::size_t size = count(at.out);
    const bool adds = call.in[0] == Into::kAdd, add_parameters = call.parameters == Into::kAdd;
    const Place in_gradient = call.in[0] == Into::kNone ? Place{} : gradient(at.in[0]);
    const Place moments = Places::at(plan_.aux_again[call.node]);
    std::vector<ByteRange> reads{values(kept(at.in[0]), size), parameter_extent(l.weight),
                                 floats(moments, 2 * rows(at.out)), values(gradient(at.out), size)};
    if (adds) reads.push_back(values(in_gradient, size));
    if (add_parameters) {
      reads.push_back(gradient_extent(l.weight));
      reads.push_back(gradient_extent(l.bias));
    }
    add(NormalizeBackward{.rows = rows(at.out),
                          .width = static_cast<std::size_t>(l.width),
                          .in = kept(at.in[0]),
                          .weight = parameter(l.weight),
                          .moments = moments,
                          .out_gradient = gradient(at.out),
                          .in_gradient = in_gradient,
                          .add = adds,
                          .weight_gradient = parameter_gradient(l.weight),
                          .bias_gradient = parameter_gradient(l.bias),
                          .add_parameters = add_parameters},
        std::move(reads), {values(in_gradient, size), gradient_extent(l.weight), gradient_extent(l.bias)});
  }

  void forward(const BatchNorm& l, const Node& at) {
    const Place moments = Places::at((*aux_)[steps_.node()]);
    const auto channels = static_cast<std::size_t>(l.channels);
    add(BatchNormalize{.samples = samples_,
                       .channels = channels,
                       .pixels = width(at.out) / channels,
                       .epsilon = static_cast<float>(l.epsilon),
                       .in = value(at.in[0]),
                       .weight = parameter(l.weight),
                       .bias = parameter(l.bias),
                       .mean = parameter(l.mean),
                       .variance = parameter(l.variance),
                       .moments = moments,
                       .out = value(at.out)},
        {values(value(at.in[0]), count(at.in[0])), parameter_extent(l.weight), parameter_extent(l.bias),
         parameter_extent(l.mean), parameter_extent(l.variance)},
        {values(value(at.out), count(at.out)), floats(moments, 3 * channels)});
  }
  void backward(const BatchNorm& l, const Node& at, const Call& call) {
    const std::size_t size = count(at.out);
    const auto channels = static_cast<std::size_t>(l.channels);
    const bool adds = call.in[0] == Into::kAdd, add_parameters = call.parameters == Into::kAdd;
    const Place in_gradient = call.in[0] == Into::kNone ? Place{} : gradient(at.in[0]);
    const Place moments = Places::at(plan_.aux_again[call.node]);
    std::vector<ByteRange> reads{values(kept(at.in[0]), size), parameter_extent(l.weight),
                                 parameter_extent(l.mean), floats(moments, 3 * channels),
                                 values(gradient(at.out), size)};
    if (adds) reads.push_back(values(in_gradient, size));
    if (add_parameters) {
      reads.push_back(gradient_extent(l.weight));
      reads.push_back(gradient_extent(l.bias));
    }
    add(BatchNormalizeBackward{.samples = samples_,
                               .channels = channels,
                               .pixels = width(at.out) / channels,
                               .in = kept(at.in[0]),
                               .weight = parameter(l.weight),
                               .mean = parameter(l.mean),
                               .moments = moments,
                               .out_gradient = gradient(at.out),
                               .in_gradient = in_gradient,
                               .add = adds,
                               .weight_gradient = parameter_gradient(l.weight),
                               .bias_gradient = parameter_gradient(l.bias),
                               .add_parameters = add_parameters,
                               .sums = parameter_gradient(l.mean)},
        std::move(reads),
        {values(in_gradient, size), gradient_extent(l.weight), gradient_extent(l.bias),
         gradient_extent(l.mean), gradient_extent(l.variance)});
  }

  void embed(const Embedding& l, const Place& position, std::size_t positions, Value out) {
    const auto width = static_cast<std::size_t>(l.width);
    add(Embed{.rows = rows(out),
              .width = width,
              .classes = static_cast<std::size_t>(l.classes),
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
  void forward(const Embedding& l, const Node& at) { embed(l, {}, 1, at.out); }
  void backward(const Embedding& l, const Node& at, const Call& call) {
    if (call.parameters == Into::kWrite) clear(gradient_extent(l.weight));
    add(EmbedBackward{.rows = rows(at.out),
                      .width = static_cast<std::size_t>(l.width),
                      .classes = static_cast<std::size_t>(l.classes),
                      .out_gradient = gradient(at.out),
                      .weight_gradient = parameter_gradient(l.weight),
                      .add = true},
        {values(gradient(at.out), count(at.out)), {{Space::kTokens, 0}, SIZE_MAX}, gradient_extent(l.weight)},
        {gradient_extent(l.weight)});
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
  void backward(const AddPositions& l, const Node& at, const Call& call) {
    const std::size_t size = program_.values[at.out].size();
    const bool adds = call.parameters == Into::kAdd;
    const ByteRange all = gradient_extent(l.weight), used = floats(all.place, size);
    if (!adds && all.bytes > used.bytes)
      clear({{Space::kGradient, all.place.offset + used.bytes}, all.bytes - used.bytes});
    std::vector<ByteRange> reads{values(gradient(at.out), count(at.out))};
    if (adds) reads.push_back(used);
    add(SumRows{.rows = samples_,
                .width = size,
                .stride = size,
                .in = gradient(at.out),
                .out = all.place,
                .add = adds},
        std::move(reads), {used});
    pass_on(at, 0, call.in[0]);
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
  void backward(const Attention& l, const Node& at, const Call& call) {
    const Place sums = Places::at(plan_.aux_again[call.node]);
    const bool adds = call.in[0] == Into::kAdd;
    if (adds && !abilities_.attention_adds)
      throw WorkerError(kExitSoftware,
                        "this program cannot run on a GPU: attention's input has other readers");
    const Place out = sums ? kept(at.out) : Place{};
    const ByteRange qkv_gradient = values(gradient(at.in[0]), count(at.in[0]));
    add(AttentionBackward{.samples = samples_,
                          .tokens = static_cast<std::size_t>(program_.values[at.out].rows),
                          .heads = static_cast<std::size_t>(l.heads),
                          .width = static_cast<std::size_t>(l.width),
                          .qkv = kept(at.in[0]),
                          .out = out,
                          .sums = sums,
                          .out_gradient = gradient(at.out),
                          .qkv_gradient = qkv_gradient.place,
                          .add = adds},
        {values(kept(at.in[0]), count(at.in[0])), values(out, count(at.out)),
         floats(sums, rows(at.out) * l.heads), values(gradient(at.out), count(at.out)),
         adds ? qkv_gradient : ByteRange{}},
        {qkv_gradient});
  }

  void convolve(const Conv2d& l, const Node& at, const Place& out, bool relu) {
    const ByteRange bias = l.bias ? parameter_extent(*l.bias) : ByteRange{};
    add(Convolve{.shape = image(l, at),
                 .in = value(at.in[0]),
                 .weight = matrix(l.weight),
                 .bias = bias.place,
                 .out = out,
                 .relu = relu},
        {values(value(at.in[0]), count(at.in[0])), matrix_extent(l.weight), bias},
        {values(out, count(at.out))});
  }
  void forward(const Conv2d& l, const Node& at) { convolve(l, at, value(at.out), false); }
  void backward(const Conv2d& l, const Node& at, const Call& call) {
    const ImageShape shape = image(l, at);
    const bool add_parameters = call.parameters == Into::kAdd, adds = call.in[0] == Into::kAdd;
    const ByteRange d = values(gradient(at.out), count(at.out));
    std::vector<ByteRange> reads{values(kept(at.in[0]), count(at.in[0])), d};
    const ByteRange bias = l.bias ? gradient_extent(*l.bias) : ByteRange{};
    const std::vector<ByteRange> writes{gradient_extent(l.weight), bias};
    if (add_parameters) reads.insert(reads.end(), writes.begin(), writes.end());
    add(ConvolveWeightGradient{.shape = shape,
                               .in = kept(at.in[0]),
                               .out_gradient = gradient(at.out),
                               .weight_gradient = parameter_gradient(l.weight),
                               .bias_gradient = bias.place,
                               .add = add_parameters},
        std::move(reads), writes, steps_.side_stream());
    if (call.in[0] == Into::kNone) return;
    const ByteRange in = values(gradient(at.in[0]), count(at.in[0]));
    reads = {d, matrix_extent(l.weight)};
    if (adds) reads.push_back(in);
    add(ConvolveInGradient{.shape = shape,
                           .weight = matrix(l.weight),
                           .out_gradient = gradient(at.out),
                           .in_gradient = gradient(at.in[0]),
                           .add = adds},
        std::move(reads), {in});
  }

  void forward(const MaxPool2d& l, const Node& at) {
    add(Pool{.shape = image(l, at), .in = value(at.in[0]), .out = value(at.out)},
        {values(value(at.in[0]), count(at.in[0]))}, {values(value(at.out), count(at.out))});
  }
  void backward(const MaxPool2d& l, const Node& at, const Call& call) { pool_backward(l, at, call, false); }
  void pool_backward(const MaxPool2d& l, const Node& at, const Call& call, bool relu) {
    const ByteRange in = values(gradient(at.in[0]), count(at.in[0]));
    const bool adds = call.in[0] == Into::kAdd;
    std::vector<ByteRange> reads{values(kept(at.in[0]), count(at.in[0])), values(kept(at.out), count(at.out)),
                                 values(gradient(at.out), count(at.out))};
    if (adds) reads.push_back(in);
    add(PoolBackward{.shape = image(l, at),
                     .in = kept(at.in[0]),
                     .out = kept(at.out),
                     .out_gradient = gradient(at.out),
                     .in_gradient = gradient(at.in[0]),
                     .add = adds,
                     .relu = relu},
        std::move(reads), {in});
  }

  void forward(const GlobalAveragePool&, const Node& at) {
    const std::size_t planes = count(at.out);
    add(Average{.planes = planes,
                .pixels = count(at.in[0]) / planes,
                .in = value(at.in[0]),
                .out = value(at.out)},
        {values(value(at.in[0]), count(at.in[0]))}, {values(value(at.out), planes)});
  }
  void backward(const GlobalAveragePool&, const Node& at, const Call& call) {
    const ByteRange in = values(gradient(at.in[0]), count(at.in[0]));
    const std::size_t planes = count(at.out);
    const bool adds = call.in[0] == Into::kAdd;
    std::vector<ByteRange> reads{values(gradient(at.out), planes)};
    if (adds) reads.push_back(in);
    add(AverageBackward{.planes = planes,
                        .pixels = count(at.in[0]) / planes,
                        .out_gradient = gradient(at.out),
                        .in_gradient = gradient(at.in[0]),
                        .add = adds},
        std::move(reads), {in});
  }

  const Program& program_;
  const Plan& plan_;
  const std::size_t samples_;
  const Abilities& abilities_;
  StepList& steps_;
  const std::vector<std::size_t>* aux_ = nullptr;  // of the current calls
  bool again_ = false;
};

}  // namespace dtrun::worker::schedule
