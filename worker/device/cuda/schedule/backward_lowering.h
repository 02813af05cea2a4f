// Backward of a program, from a plan's calls to steps. A linear layer's input gradient and GELU's become one
// step if the library can do both.
#pragma once

#include <utility>
#include <vector>

#include "proto/core/exit_codes.h"
#include "worker/base/error.h"
#include "worker/device/cuda/schedule/pass_lowering.h"

namespace dtrun::worker::cuda {

class BackwardLowering : public PassLowering {
 public:
  using PassLowering::PassLowering;

  // Lowers both calls to one step; false if that is not possible.
  bool run_pair(const Call& first, const Call& second) {
    const Node &lower = node(second.node), &upper = node(first.node);
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

  // The whole backward for m rows. `slope`: GELU's input, if GELU's backward is part of the step.
  void linear_backward(const Linear& l, std::size_t m, const Place& x, const Place& d, std::size_t stride,
                       bool add_parameters, Into into, const Place& d_in, const Place& slope) {
    weight_gradient(l, m, x, d, stride, add_parameters);
    if (into == Into::kNone) return;
    MatmulShape shape = in_gradient_product(l, m, stride, into);
    if (slope) shape.epilogue = Epilogue::kGeluGradient;
    const ByteRange out = values(d_in, m * l.in_features);
    std::vector<ByteRange> reads{values(d, m * stride), matrix_extent(l), values(slope, m * l.in_features)};
    if (shape.add) reads.push_back(out);
    add(Matmul{.shape = shape, .a = d, .b = matrix(l.weight), .c = d_in, .bias = {}, .aux = slope},
        std::move(reads), {out});
  }

 private:
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

  void backward(const Linear& l, const Node& at, const Call& call) {
    linear_backward(l, rows(at.out), kept(at.in[0]), gradient(at.out), l.out_features,
                    call.parameters == Into::kAdd, call.in[0],
                    call.in[0] == Into::kNone ? Place{} : gradient(at.in[0]), {});
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
  void backward(const Relu&, const Node& at, const Call& call) {
    gradient_elementwise(Kind::kReluGradient, at, call, kept(at.out));
  }
  void backward(const Gelu&, const Node& at, const Call& call) {
    gradient_elementwise(Kind::kGeluGradient, at, call, kept(at.in[0]));
  }
  void backward(const Dropout& l, const Node& at, const Call& call) {
    gradient_elementwise(Kind::kDropout, at, call, {}, l.probability);
  }
  void backward(const Flatten&, const Node& at, const Call& call) { pass_on(at, 0, call.in[0]); }
  void backward(const Add&, const Node& at, const Call& call) {
    pass_on(at, 0, call.in[0]);
    pass_on(at, 1, call.in[1]);
  }
  void backward(const LogSoftmaxNll&, const Node&, const Call&) {}

  // The input's gradient equals the output's.
  void pass_on(const Node& at, int k, Into into) {
    if (into != Into::kWrite && into != Into::kAdd) return;
    elementwise({.kind = Kind::kCopy,
                 .count = count(at.out),
                 .first = gradient(at.out),
                 .out = gradient(at.in[k]),
                 .add = into == Into::kAdd});
  }

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

  void clear(const ByteRange& extent) { add(Clear{extent.place, extent.bytes}, {}, {extent}); }

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

  void backward(const Attention& l, const Node& at, const Call& call) {
    const Place sums = Places::at(plan_.aux_again[call.node]);
    if (call.in[0] == Into::kAdd)
      throw WorkerError(kExitSoftware,
                        "this program cannot run on a GPU: attention's input has other readers");
    add(AttentionBackward{.samples = samples_,
                          .tokens = static_cast<std::size_t>(program_.values[at.out].rows),
                          .heads = static_cast<std::size_t>(l.heads),
                          .width = static_cast<std::size_t>(l.width),
                          .qkv = kept(at.in[0]),
                          .out = kept(at.out),
                          .sums = sums,
                          .out_gradient = gradient(at.out),
                          .qkv_gradient = gradient(at.in[0])},
        {values(kept(at.in[0]), count(at.in[0])), values(kept(at.out), count(at.out)),
         floats(sums, rows(at.out) * l.heads), values(gradient(at.out), count(at.out))},
        {values(gradient(at.in[0]), count(at.in[0]))});
  }

  void backward(const Conv2d& l, const Node& at, const Call& call) {
    const ImageShape shape = image(at.in[0], at.out, l.kernel);
    const bool add_parameters = call.parameters == Into::kAdd, adds = call.in[0] == Into::kAdd;
    const ByteRange d = values(gradient(at.out), count(at.out));
    std::vector<ByteRange> reads{values(kept(at.in[0]), count(at.in[0])), d};
    const std::vector<ByteRange> writes{gradient_extent(l.weight), gradient_extent(l.bias)};
    if (add_parameters) reads.insert(reads.end(), writes.begin(), writes.end());
    add(ConvolveWeightGradient{.shape = shape,
                               .in = kept(at.in[0]),
                               .out_gradient = gradient(at.out),
                               .weight_gradient = parameter_gradient(l.weight),
                               .bias_gradient = parameter_gradient(l.bias),
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

  void backward(const MaxPool2d& l, const Node& at, const Call& call) {
    const ByteRange in = values(gradient(at.in[0]), count(at.in[0]));
    const bool adds = call.in[0] == Into::kAdd;
    std::vector<ByteRange> reads{values(kept(at.in[0]), count(at.in[0])), values(kept(at.out), count(at.out)),
                                 values(gradient(at.out), count(at.out))};
    if (adds) reads.push_back(in);
    add(PoolBackward{.shape = image(at.in[0], at.out, l.kernel),
                     .in = kept(at.in[0]),
                     .out = kept(at.out),
                     .out_gradient = gradient(at.out),
                     .in_gradient = gradient(at.in[0]),
                     .add = adds},
        std::move(reads), {in});
  }
};

}  // namespace dtrun::worker::cuda
