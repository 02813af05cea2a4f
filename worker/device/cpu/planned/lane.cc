#include "worker/device/cpu/planned/lane.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "proto/core/overloaded.h"
#include "worker/base/buffer.h"
#include "worker/base/error.h"
#include "worker/core/dropout.h"
#include "worker/device/cpu/onednn/matmul.h"
#include "worker/device/cpu/planned/group_ops.h"
#include "worker/device/cpu/planned/kernels.h"
#include "worker/device/cpu/planned/lane_memory.h"
#include "worker/device/cpu/planned/matmuls.h"
#include "worker/device/wrong_data.h"
#include "worker/model/plan.h"

namespace dtrun::worker {
namespace {

using planned::kLeft, planned::kRight, planned::kScores, planned::kScoreGradients;

template <typename Matmuls>
class PlannedLane final : public Lane, private planned::LaneMemory {
 public:
  PlannedLane(const Program& program, int capacity, const PlanFor& layout, NodeClock clock)
      : LaneMemory(program, make_plan(program, capacity, layout)),
        classifier_(std::get<Linear>(program.nodes[plan().classifier].op)),
        logits_(plan().logit_rows * classifier_.out_features),
        scores_(plan().scores),
        clock_(std::move(clock)) {}

  Stream& stream() override { return *stream_; }

  void parameters_changed(const float* weights) override {
    weights_ = weights;
    matmuls_.parameters_changed(weights, program().size);
  }

  void train(const Microbatch& microbatch, float* out,
             const std::function<void(int bucket)>& ready) override {
    const MicrobatchStats stats = begin(microbatch, true, out + kStatisticsFloats);
    std::fill_n(out, kStatisticsFloats, 0.0f);
    out[0] = stats.loss, out[1] = stats.correct;
    out[2] = static_cast<float>(microbatch.samples) * static_cast<float>(program().sample.targets);
    std::size_t next = 0;
    for (const Call& call : plan().backward) {
      if (&call != &plan().backward.front()) run(call);
      if (call.final_from == SIZE_MAX) continue;
      for (; next < program().buckets.size() && program().buckets[next].begin >= call.final_from; ++next)
        ready(static_cast<int>(next));
    }
  }

  MicrobatchStats evaluate(const Microbatch& microbatch) override {
    return begin(microbatch, false, nullptr);
  }

 private:
  using Element = typename Matmuls::Element;
  using Matmul = matmul::Matmul<Element>;

  // Forward, and the classifier with its part of backward if there is a gradient.
  MicrobatchStats begin(const Microbatch& microbatch, bool training, float* gradient) {
    begin_forward(microbatch, weights_, gradient);
    training_ = training;
    if (grouped()) groups_.load_samples();
    for (const Call& call : plan().forward) run(call);
    begin_backward();
    MicrobatchStats stats;
    const Call& classifier = plan().backward.front();
    clock_.time(classifier.node, true, [&] { stats = classify(classifier); });
    return stats;
  }

  void run(const Call& call) {
    const Node& node = program().nodes[call.node];
    clock_.time(call.node, call.backward,
                [&] { std::visit([&](const auto& op) { run(op, node, call); }, node.op); });
  }
  void run(const auto& op, const Node& node, const Call& call) {
    if constexpr (planned::Grouped<std::decay_t<decltype(op)>>)
      if (grouped())
        return call.backward ? groups_.backward(op, node, call) : groups_.forward(op, node, call);
    call.backward ? backward(op, node, call) : forward(op, node);
  }

  // The parameter as matmuls read it.
  const Element* matrix(std::size_t parameter) const {
    return matmuls_.weight(program().parameters[parameter].offset);
  }
  float* aux(const Node& node) const {
    return LaneMemory::aux(static_cast<int>(&node - program().nodes.data()));
  }

  // ---- operations

  // Of a convolution or a pooling.
  planned::Windows windows(const auto& l, const Node& node) const {
    const SampleShape &in = program().values[node.in[0]].row, &out = program().values[node.out].row;
    return {in.channels, in.height, in.width, l.kernel, l.stride, l.padding, out.height, out.width};
  }
  // A convolution of one sample is a matmul: [out channels, patch] by [patch, positions].
  struct Convolution {
    planned::Windows windows;
    std::int64_t channels, patch, positions;
    std::size_t in, out;  // floats of a sample
  };
  Convolution convolution(const Conv2d& l, const Node& node) const {
    const SampleShape& out = program().values[node.out].row;
    return {.windows = windows(l, node),
            .channels = l.out_channels,
            .patch = std::int64_t{l.in_channels} * l.kernel * l.kernel,
            .positions = std::int64_t{out.height} * out.width,
            .in = program().values[node.in[0]].row.size(),
            .out = out.size()};
  }
  void forward(const Conv2d& l, const Node& node) {
    const Convolution c = convolution(l, node);
    for (std::size_t n = 0; n < samples(); ++n) {
      float* const to = out(node.out) + n * c.out;
      k_.im2col(c.windows, in(node.in[0]) + n * c.in, columns());
      for (std::int64_t o = 0; l.bias && o < c.channels; ++o)
        std::fill_n(to + o * c.positions, c.positions, weight(*l.bias)[o]);
      multiply({.m = c.channels,
                .n = c.positions,
                .k = c.patch,
                .a = matrix(l.weight),
                .a_stride = c.patch,
                .b = matmuls_.operand(kRight, columns(), c.patch * c.positions),
                .b_stride = c.positions,
                .beta = l.bias ? 1.0f : 0.0f,
                .c = to,
                .c_stride = c.positions});
    }
  }
  void backward(const Conv2d& l, const Node& node, const Call& call) {
    const Convolution c = convolution(l, node);
    if (call.in[0] == Into::kWrite) std::fill_n(gradient(node.in[0]), count(node.in[0]), 0.0f);
    for (std::size_t n = 0; n < samples(); ++n) {
      const float* const d_out = gradient(node.out) + n * c.out;
      const Element* const d = matmuls_.operand(kLeft, d_out, c.out);
      const bool add = n > 0 || call.parameters == Into::kAdd;
      k_.im2col(c.windows, in(node.in[0]) + n * c.in, columns());
      multiply({.b_transposed = true,
                .m = c.channels,
                .n = c.patch,
                .k = c.positions,
                .a = d,
                .a_stride = c.positions,
                .b = matmuls_.operand(kRight, columns(), c.patch * c.positions),
                .b_stride = c.positions,
                .beta = add ? 1.0f : 0.0f,
                .c = weight_gradient(l.weight),
                .c_stride = c.patch});
      if (l.bias) k_.sum_each_row(c.channels, c.positions, d_out, add, weight_gradient(*l.bias));
      if (call.in[0] == Into::kNone) continue;
      multiply({.a_transposed = true,
                .m = c.patch,
                .n = c.positions,
                .k = c.channels,
                .a = matrix(l.weight),
                .a_stride = c.patch,
                .b = d,
                .b_stride = c.positions,
                .c = columns(),
                .c_stride = c.positions});
      k_.col2im(c.windows, columns(), gradient(node.in[0]) + n * c.in);
    }
  }

  void forward(const MaxPool2d& l, const Node& node) {
    const std::size_t from = program().values[node.in[0]].size(), to = program().values[node.out].size();
    for (std::size_t n = 0; n < samples(); ++n)
      k_.max_pool(windows(l, node), in(node.in[0]) + n * from, out(node.out) + n * to);
  }
  void backward(const MaxPool2d& l, const Node& node, const Call& call) {
    const std::size_t from = program().values[node.in[0]].size(), to = program().values[node.out].size();
    for (std::size_t n = 0; n < samples(); ++n)
      k_.max_pool_backward(windows(l, node), in(node.in[0]) + n * from, in(node.out) + n * to,
                           gradient(node.out) + n * to, call.in[0] == Into::kAdd,
                           gradient(node.in[0]) + n * from);
  }

  std::size_t pixels(Value image) const {
    return static_cast<std::size_t>(program().values[image].row.height) * program().values[image].row.width;
  }
  void forward(const GlobalAveragePool&, const Node& node) {
    const std::size_t each = pixels(node.in[0]);
    k_.sum_each_row(count(node.out), each, in(node.in[0]), false, out(node.out));
    for (std::size_t i = 0; i < count(node.out); ++i) out(node.out)[i] /= static_cast<float>(each);
  }
  void backward(const GlobalAveragePool&, const Node& node, const Call& call) {
    const std::size_t each = pixels(node.in[0]);
    const bool add = call.in[0] == Into::kAdd;
    float* to = gradient(node.in[0]);
    for (std::size_t i = 0; i < count(node.out); ++i) {
      const float part = gradient(node.out)[i] / static_cast<float>(each);
      for (std::size_t pixel = 0; pixel < each; ++pixel, ++to) *to = add ? *to + part : part;
    }
  }

  // A view; its gradient too.
  void forward(const Flatten&, const Node&) {}
  void backward(const Flatten&, const Node& node, const Call& call) { pass_on(node, 0, call.in[0]); }
  // classify() carries out the classifier and the loss.
  void forward(const LogSoftmaxNll&, const Node&) {}
  void backward(const LogSoftmaxNll&, const Node&, const Call&) {}

  void forward(const Relu&, const Node& node) { k_.relu(count(node.out), in(node.in[0]), out(node.out)); }
  void backward(const Relu&, const Node& node, const Call& call) {
    k_.relu_backward(count(node.out), in(node.out), gradient(node.out), call.in[0] == Into::kAdd,
                     gradient(node.in[0]));
  }

  void forward(const Gelu&, const Node& node) { k_.gelu(count(node.out), in(node.in[0]), out(node.out)); }
  void backward(const Gelu&, const Node& node, const Call& call) {
    k_.gelu_backward(count(node.out), in(node.in[0]), gradient(node.out), call.in[0] == Into::kAdd,
                     gradient(node.in[0]));
  }

  void forward(const Linear& l, const Node& node) {
    matmul(l, in(node.in[0]), rows(node.out), out(node.out));
  }
  void backward(const Linear& l, const Node& node, const Call& call) {
    backward_of_rows(l, rows(node.out), in(node.in[0]), gradient(node.out), call.parameters == Into::kAdd,
                     call.in[0], call.in[0] == Into::kNone ? nullptr : gradient(node.in[0]));
  }

  void multiply(const Matmul& matmul) { matmuls_.multiply(matmul); }

  // y = x W^T + bias of m rows.
  void matmul(const Linear& l, const float* x, std::size_t m, float* y) {
    const Matmul matmul{.b_transposed = !l.in_first,
                        .m = static_cast<std::int64_t>(m),
                        .n = l.out_features,
                        .k = l.in_features,
                        .a = matmuls_.operand(kLeft, x, m * l.in_features),
                        .a_stride = l.in_features,
                        .b = matrix(l.weight),
                        .b_stride = l.in_first ? l.out_features : l.in_features,
                        .c = y,
                        .c_stride = l.out_features};
    l.bias ? matmuls_.multiply(matmul, weight(*l.bias)) : matmuls_.multiply(matmul);
  }
  // All of backward, for m rows.
  void backward_of_rows(const Linear& l, std::size_t m, const float* x, const float* d_out,
                        bool add_parameters, Into into, float* d_in) {
    const auto rows = static_cast<std::int64_t>(m);
    const Element* const d = matmuls_.operand(kLeft, d_out, m * l.out_features);
    if (into != Into::kNone)
      multiply({.b_transposed = l.in_first,
                .m = rows,
                .n = l.in_features,
                .k = l.out_features,
                .a = d,
                .a_stride = l.out_features,
                .b = matrix(l.weight),
                .b_stride = l.in_first ? l.out_features : l.in_features,
                .beta = into == Into::kAdd ? 1.0f : 0.0f,
                .c = d_in,
                .c_stride = l.in_features});
    const Element* const in = matmuls_.operand(kRight, x, m * l.in_features);
    const Element* const left = l.in_first ? in : d;
    const Element* const right = l.in_first ? d : in;
    const std::int64_t height = l.in_first ? l.in_features : l.out_features,
                       width = l.in_first ? l.out_features : l.in_features;
    multiply({.a_transposed = true,
              .m = height,
              .n = width,
              .k = rows,
              .a = left,
              .a_stride = height,
              .b = right,
              .b_stride = width,
              .beta = add_parameters ? 1.0f : 0.0f,
              .c = weight_gradient(l.weight),
              .c_stride = width});
    if (l.bias) k_.sum_rows(m, l.out_features, d_out, add_parameters, weight_gradient(*l.bias));
  }

  void forward(const LayerNorm& l, const Node& node) {
    k_.layer_norm(rows(node.out), l.width, l.epsilon, in(node.in[0]), weight(l.weight), weight(l.bias),
                  aux(node), out(node.out));
  }
  void backward(const LayerNorm& l, const Node& node, const Call& call) {
    k_.layer_norm_backward(rows(node.out), l.width, in(node.in[0]), weight(l.weight), aux(node),
                           gradient(node.out), call.in[0] == Into::kAdd,
                           call.in[0] == Into::kNone ? nullptr : gradient(node.in[0]),
                           call.parameters == Into::kAdd, weight_gradient(l.weight), weight_gradient(l.bias));
  }

  planned::Planes planes(const BatchNorm& l, const Node& node) const {
    return {samples(), static_cast<std::size_t>(l.channels), pixels(node.in[0])};
  }
  void forward(const BatchNorm& l, const Node& node) {
    float* const moments = aux(node);
    const auto epsilon = static_cast<float>(l.epsilon);
    if (training_)
      k_.batch_moments(planes(l, node), epsilon, in(node.in[0]), moments);
    else
      for (int c = 0; c < l.channels; ++c)
        moments[3 * c] = weight(l.mean)[c],
                    moments[3 * c + 1] = 1 / std::sqrt(weight(l.variance)[c] + epsilon);
    k_.batch_norm(planes(l, node), in(node.in[0]), weight(l.weight), weight(l.bias), moments, out(node.out));
  }
  void backward(const BatchNorm& l, const Node& node, const Call& call) {
    const float* const moments = aux(node);
    k_.batch_norm_backward(planes(l, node), in(node.in[0]), weight(l.weight), moments, gradient(node.out),
                           call.in[0] == Into::kAdd,
                           call.in[0] == Into::kNone ? nullptr : gradient(node.in[0]),
                           call.parameters == Into::kAdd, weight_gradient(l.weight), weight_gradient(l.bias));
    const auto n = static_cast<float>(samples());
    for (int c = 0; c < l.channels; ++c) {
      const float shift = moments[3 * c] - weight(l.mean)[c];
      weight_gradient(l.mean)[c] = n * shift;
      weight_gradient(l.variance)[c] = n * (moments[3 * c + 2] + shift * shift);
    }
  }

  void forward(const Embedding& l, const Node& node) {
    const std::size_t m = rows(node.out);
    for (std::size_t r = 0; r < m; ++r) {
      const std::int32_t token = microbatch().tokens[r];
      if (token < 0 || token >= l.classes) throw wrong_token(token, l.classes);
      std::copy_n(weight(l.weight) + static_cast<std::size_t>(token) * l.width, l.width,
                  out(node.out) + r * l.width);
    }
  }
  // Goes through the rows in order, so that each token's sum has a fixed order.
  void backward(const Embedding& l, const Node& node, const Call& call) {
    float* const to = weight_gradient(l.weight);
    if (call.parameters == Into::kWrite) std::fill_n(to, program().parameters[l.weight].size, 0.0f);
    const std::size_t m = rows(node.out);
    for (std::size_t r = 0; r < m; ++r) {
      float* const row = to + static_cast<std::size_t>(microbatch().tokens[r]) * l.width;
      k_.add(l.width, row, gradient(node.out) + r * l.width, row);
    }
  }

  void forward(const AddPositions& l, const Node& node) {
    const std::size_t size = program().values[node.out].size();
    for (std::size_t n = 0; n < samples(); ++n)
      k_.add(size, in(node.in[0]) + n * size, weight(l.weight), out(node.out) + n * size);
  }
  void backward(const AddPositions& l, const Node& node, const Call& call) {
    const std::size_t size = program().values[node.out].size();
    const std::size_t unused = program().parameters[l.weight].size - size;
    float* const to = weight_gradient(l.weight);
    k_.sum_rows(samples(), size, gradient(node.out), call.parameters == Into::kAdd, to);
    if (call.parameters == Into::kWrite) std::fill_n(to + size, unused, 0.0f);
    pass_on(node, 0, call.in[0]);
  }

  void forward(const Add&, const Node& node) {
    k_.add(count(node.out), in(node.in[0]), in(node.in[1]), out(node.out));
  }
  void backward(const Add&, const Node& node, const Call& call) {
    pass_on(node, 0, call.in[0]);
    pass_on(node, 1, call.in[1]);
  }

  // The output's gradient is the input's.
  void pass_on(const Node& node, int k, Into into) const {
    if (into == Into::kWrite)
      std::copy_n(gradient(node.out), count(node.out), gradient(node.in[k]));
    else if (into == Into::kAdd)
      k_.add(count(node.out), gradient(node.in[k]), gradient(node.out), gradient(node.in[k]));
  }

  planned::DropoutStream dropout_words(const Node& node) const {
    const auto index = static_cast<int>(&node - program().nodes.data());
    const RandomStream::Words words = dropout_stream(microbatch().key, index).words();
    return {{words.key[0], words.key[1]}, words.a, words.b, words.use};
  }
  void forward(const Dropout& l, const Node& node) {
    const float* const from = in(node.in[0]);
    if (training_)
      k_.dropout(count(node.out), dropout_words(node), l.probability, from, false, out(node.out));
    else if (from != out(node.out))
      std::copy_n(from, count(node.out), out(node.out));
  }
  void backward(const Dropout& l, const Node& node, const Call& call) {
    k_.dropout(count(node.out), dropout_words(node), l.probability, gradient(node.out),
               call.in[0] == Into::kAdd, gradient(node.in[0]));
  }

  // Calls each(sample, head, first query row, query rows).
  template <typename Each>
  void each_block(const Attention& l, const Node& node, const Each& each) const {
    const std::size_t tokens = program().values[node.out].rows;
    for (std::size_t n = 0; n < samples(); ++n)
      for (int head = 0; head < l.heads; ++head)
        for (std::size_t first = 0; first < tokens; first += kQueryRows)
          each(n * tokens, head, first, std::min(kQueryRows, tokens - first));
  }

  // A block of queries in one head of one sample, and all keys up to its last query.
  struct QueryBlock {
    std::int64_t queries, keys, size;  // size: of a head
    std::int64_t stride;               // of rows of [query | key | value]
    std::int64_t width;                // of the output's rows
    std::size_t query, key, value;     // offsets in [query | key | value] rows
    std::size_t out;                   // offset in the output's rows
    float scale;
  };
  static QueryBlock block_of(const Attention& l, std::size_t sample_row, int head, std::size_t first,
                             std::size_t queries) {
    const std::size_t width = l.width, stride = 3 * width, size = width / l.heads, at = head * size;
    return {.queries = static_cast<std::int64_t>(queries),
            .keys = static_cast<std::int64_t>(first + queries),
            .size = static_cast<std::int64_t>(size),
            .stride = static_cast<std::int64_t>(stride),
            .width = static_cast<std::int64_t>(width),
            .query = (sample_row + first) * stride + at,
            .key = sample_row * stride + width + at,
            .value = sample_row * stride + 2 * width + at,
            .out = (sample_row + first) * width + at,
            .scale = 1 / std::sqrt(static_cast<float>(size))};
  }

  // softmax(scale * Q K^T) into scores_: [queries, keys].
  void attend(const QueryBlock& b, std::size_t first, const Element* qkv) {
    multiply({.b_transposed = true,
              .m = b.queries,
              .n = b.keys,
              .k = b.size,
              .alpha = b.scale,
              .a = qkv + b.query,
              .a_stride = b.stride,
              .b = qkv + b.key,
              .b_stride = b.stride,
              .c = scores_.data(),
              .c_stride = b.keys});
    k_.causal_softmax(b.queries, first, b.keys, b.keys, scores_.data());
  }
  const Element* rounded(const QueryBlock& b, planned::Operand number, const float* scores) {
    return matmuls_.operand(number, scores, b.queries * b.keys);
  }

  void forward(const Attention& l, const Node& node) {
    const Element* const qkv = matmuls_.operand(kLeft, in(node.in[0]), count(node.in[0]));
    each_block(l, node, [&](std::size_t sample_row, int head, std::size_t first, std::size_t queries) {
      const QueryBlock b = block_of(l, sample_row, head, first, queries);
      attend(b, first, qkv);
      multiply({.m = b.queries,
                .n = b.size,
                .k = b.keys,
                .a = rounded(b, kScores, scores_.data()),
                .a_stride = b.keys,
                .b = qkv + b.value,
                .b_stride = b.stride,
                .c = out(node.out) + b.out,
                .c_stride = b.width});
    });
  }

  // Computes the scores again: kept, they would take rows^2 floats a head.
  void backward(const Attention& l, const Node& node, const Call& call) {
    const Element* const qkv = matmuls_.operand(kLeft, in(node.in[0]), count(node.in[0]));
    float* const d_qkv = gradient(node.in[0]);
    const Element* const d_out = matmuls_.operand(kRight, gradient(node.out), count(node.out));
    if (call.in[0] == Into::kWrite) std::fill_n(d_qkv, count(node.in[0]), 0.0f);
    float* const d_scores = scores_.data() + plan().scores / 2;
    each_block(l, node, [&](std::size_t sample_row, int head, std::size_t first, std::size_t queries) {
      const QueryBlock b = block_of(l, sample_row, head, first, queries);
      attend(b, first, qkv);
      multiply({.a_transposed = true,
                .m = b.keys,
                .n = b.size,
                .k = b.queries,
                .a = rounded(b, kScores, scores_.data()),
                .a_stride = b.keys,
                .b = d_out + b.out,
                .b_stride = b.width,
                .beta = 1,
                .c = d_qkv + b.value,
                .c_stride = b.stride});
      multiply({.b_transposed = true,
                .m = b.queries,
                .n = b.keys,
                .k = b.size,
                .a = d_out + b.out,
                .a_stride = b.width,
                .b = qkv + b.value,
                .b_stride = b.stride,
                .c = d_scores,
                .c_stride = b.keys});
      k_.softmax_backward(b.queries, b.keys, b.keys, scores_.data(), b.scale, d_scores);
      const Element* const d_rounded = rounded(b, kScoreGradients, d_scores);
      multiply({.m = b.queries,
                .n = b.size,
                .k = b.keys,
                .a = d_rounded,
                .a_stride = b.keys,
                .b = qkv + b.key,
                .b_stride = b.stride,
                .beta = 1,
                .c = d_qkv + b.query,
                .c_stride = b.stride});
      multiply({.a_transposed = true,
                .m = b.keys,
                .n = b.size,
                .k = b.queries,
                .a = d_rounded,
                .a_stride = b.keys,
                .b = qkv + b.query,
                .b_stride = b.stride,
                .beta = 1,
                .c = d_qkv + b.key,
                .c_stride = b.stride});
    });
  }

  // ---- the linear layer that makes the logits, and the loss, some rows at a time

  MicrobatchStats classify(const Call& call) {
    const Value x = program().nodes[plan().classifier].in[0];
    const std::size_t all = rows(x), width = classifier_.in_features;
    const bool into_x = call.in[0] != Into::kNone;
    Sums sums;
    for (std::size_t first = 0; first < all; first += plan().logit_rows) {
      const std::size_t m = std::min(plan().logit_rows, all - first);
      const float* const some = in(x) + first * width;
      grouped() ? groups_.logits(classifier_, x, logits_.data())
                : matmul(classifier_, some, m, logits_.data());
      add_losses(first, m, sums);
      if (!wants_gradient()) continue;
      if (grouped())
        groups_.backward_of_logits(classifier_, x, logits_.data(), call.in[0]);
      else
        backward_of_rows(classifier_, m, some, logits_.data(), first > 0, call.in[0],
                         into_x ? gradient(x) + first * width : nullptr);
    }
    return {.loss = static_cast<float>(sums.loss), .correct = static_cast<float>(sums.correct)};
  }

  struct Sums {
    double loss = 0;
    int correct = 0;
  };
  // Of m rows from `first` on, as far as they are real; their logits become the loss' gradient.
  void add_losses(std::size_t first, std::size_t m, Sums& sums) const {
    const int classes = classifier_.out_features;
    const std::size_t real = static_cast<std::size_t>(microbatch().samples) * program().sample.targets;
    for (std::size_t row = first; row < std::min(first + m, real); ++row) {
      const std::int32_t target = microbatch().targets[row];
      if (target < 0 || target >= classes) throw wrong_target(target, classes);
      std::int32_t largest = 0;
      sums.loss += k_.classify(classes, target, program().label_smoothing, wants_gradient(),
                               logits_.data() + (row - first) * classes, &largest);
      sums.correct += largest == target;
    }
  }

  const planned::Kernels& k_ = planned::kernels();
  const planned::GroupOps groups_{*this};
  const Linear classifier_;
  const Buffer logits_;  // [logit rows, classes]
  const Buffer scores_;  // attention's scores, and their gradients
  Matmuls matmuls_;
  const float* weights_ = nullptr;  // flat; the caller's
  bool training_ = false;
  const NodeClock clock_;
  const std::unique_ptr<Stream> stream_ = make_cpu_arithmetic()->make_stream();
};

}  // namespace

std::unique_ptr<Lane> make_planned_lane(const Program& program, int capacity, const PlanFor& layout,
                                        NodeClock clock) {
  onednn::use_one_thread();
  if (program.bf16)
    return std::make_unique<PlannedLane<planned::Bf16Matmuls>>(program, capacity, layout, std::move(clock));
  return std::make_unique<PlannedLane<planned::Fp32Matmuls>>(program, capacity, layout, std::move(clock));
}

}  // namespace dtrun::worker
