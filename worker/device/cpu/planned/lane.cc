#include "worker/device/cpu/planned/lane.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "worker/base/buffer.h"
#include "worker/core/dropout.h"
#include "worker/device/cpu/grouped/kernels.h"
#include "worker/device/cpu/onednn/matmul.h"
#include "worker/device/cpu/planned/convolutions.h"
#include "worker/device/cpu/planned/group_norm.h"
#include "worker/device/cpu/planned/group_ops.h"
#include "worker/device/cpu/planned/kernels.h"
#include "worker/device/cpu/planned/lane_memory.h"
#include "worker/device/cpu/planned/matmuls.h"
#include "worker/device/wrong_data.h"
#include "worker/model/plan.h"
#include "worker/quantize/matrices.h"
#include "worker/schedule/schedule.h"

namespace dtrun::worker {
namespace planned {
namespace {

Abilities abilities_of(const Plan& plan) {
  const bool groups = plan.group > 1;
  const auto multiplies = [groups](const MatmulShape& shape) {
    const Epilogue with = shape.epilogue;
    return with == Epilogue::kNone || with == Epilogue::kBias || with == Epilogue::kBiasRelu ||
           (groups && with == Epilogue::kRowSums);
  };
  return {.multiplies = multiplies, .side_streams = 0, .attention_adds = true, .pools_with_relu = true};
}

template <typename Matmuls>
class PlannedLane final : public Lane, private LaneMemory {
 public:
  PlannedLane(const Program& program, int capacity, const PlanFor& layout, LaneClock clock,
              const PlanFor& of_teacher)
      : LaneMemory(program, make_plan(program, capacity, layout), capacity),
        scores_(plan().scores),
        clock_(std::move(clock)) {
    if (program.teacher == nullptr || program.teacher->alpha == 0) return;
    teacher_ =
        std::make_unique<PlannedLane>(program.teacher->program, capacity, of_teacher, LaneClock(), PlanFor());
    teacher_->parameters_changed(program.teacher->parameters.data());
    taught_ = Buffer(2 * std::get<LogSoftmaxNll>(program.nodes.back().op).classes);
  }

  Stream& stream() override { return *stream_; }

  void parameters_changed(const float* weights) override {
    weights_ = weights;
    if (const auto& aware = program().quantize_aware) {
      round_matrices(program(), *aware, weights, rounded_.data());
      weights_ = rounded_.data();
    }
    matmuls_.parameters_changed(weights_, program().size);
  }

  void train(const Microbatch& microbatch, float* out,
             const std::function<void(int bucket)>& ready) override {
    begin(microbatch, out);
    in_lock_step_ = false;
    go_on(ready);
  }
  void begin(const Microbatch& microbatch, float* out) override {
    steps_ = &begin(microbatch, true, out);
    done_ = 0, in_lock_step_ = true, summed_ = false;
    if (teacher_) teacher_->begin_teaching(microbatch);
  }
  std::span<double> go_on(const std::function<void(int bucket)>& ready) override {
    ready_ = &ready;
    const std::size_t forward = steps_->forward.size(), all = forward + steps_->backward.size();
    for (; done_ < all; ++done_, summed_ = false) {
      const Step& step = done_ < forward ? steps_->forward[done_] : steps_->backward[done_ - forward];
      if (in_lock_step_ && !summed_ && is_batch_norm(step.work)) {
        summed_ = true;
        std::span<double> sums;
        clock_.time(step, [&] { sums = norm_.sums_of(step.work); });
        return sums;
      }
      run_next(step);
    }
    return {};
  }

  MicrobatchStats evaluate(const Microbatch& microbatch) override {
    float statistics[kStatisticsFloats];
    const Schedule& steps = begin(microbatch, false, statistics);
    run(steps.forward);
    run(steps.evaluate);
    return {.loss = statistics[0], .correct = statistics[1]};
  }

 private:
  using Element = typename Matmuls::Element;
  using Product = matmul::Matmul<Element>;

  // The steps for as many samples. `out`: the statistics, behind which the gradient lies in training.
  const Schedule& begin(const Microbatch& microbatch, bool training, float* out) {
    LaneMemory::begin(microbatch, weights_, out + kStatisticsFloats);
    training_ = training, before_ = nullptr;
    statistics_ = out, loss_ = 0, correct_ = 0;
    std::fill_n(out, kStatisticsFloats, 0.0f);
    out[2] = static_cast<float>(microbatch.samples) * static_cast<float>(program().sample.targets);
    if (grouped()) groups_.load_samples();
    const auto found = schedules_.find(samples());
    if (found != schedules_.end()) return found->second;
    return schedules_
        .emplace(samples(),
                 make_schedule(program(), plan(), static_cast<int>(samples()), abilities_of(plan())))
        .first->second;
  }

  void run(const std::vector<Step>& steps) {
    for (const Step& step : steps) run_next(step);
  }
  void run_next(const Step& step) {
    // What a layer's matmuls have rounded serves those of the same call.
    if (before_ == nullptr || step.node != before_->node || step.backward != before_->backward ||
        std::holds_alternative<CrossEntropy>(step.work))
      matmuls_.forget();
    before_ = &step;
    clock_.time(step, [&] { run(step); });
  }
  [[gnu::noinline]] void run(const Step& step) {
    std::visit([&](const auto& work) { run(work, step); }, step.work);
  }

  // ---- a teacher

  // Behind it logits_of() gives each row of the microbatch's logits once, in order. Its forward and its
  // matmuls are timed as part of the student's.
  void begin_teaching(const Microbatch& microbatch) {
    const Schedule& steps = begin(microbatch, false, unread_);
    run(steps.forward);
    next_ = steps.evaluate.data();
    chunk_ = {};
  }
  // Only the logits of a few rows are in memory at a time.
  const float* logits_of(std::size_t row) {
    while (row >= first_row(chunk_) + chunk_.rows) {
      matmuls_.forget();
      for (; !std::holds_alternative<CrossEntropy>(next_->work); ++next_) run(*next_);
      chunk_ = std::get<CrossEntropy>((next_++)->work);
    }
    if (!grouped()) return out(chunk_.logits) + (row - first_row(chunk_)) * chunk_.stride;
    const std::size_t in_group = row % grouped::kGroup;
    if (in_group == 0) groups_.to_rows(chunk_.classes, out(chunk_.logits) + row * chunk_.classes, columns());
    return columns() + in_group * chunk_.classes;
  }
  static std::size_t first_row(const CrossEntropy& w) { return w.targets.offset / sizeof(std::int32_t); }

  // ---- matmuls

  void multiply(const Product& product) { matmuls_.multiply(product); }

  const Element* operand(Operand number, const Place& at, std::size_t bytes) {
    if (at.space == Space::kMatrices) return matmuls_.weight(at.offset / sizeof(float));
    return matmuls_.kept_operand(number, in(at), bytes / sizeof(float));
  }
  void run(const Matmul& w, const Step&) {
    if (grouped()) return groups_.run(w);
    const MatmulShape& s = w.shape;
    const OperandBytes bytes = bytes_of(s);
    const Product product{.a_transposed = s.a_transposed,
                          .b_transposed = s.b_transposed,
                          .m = s.m,
                          .n = s.n,
                          .k = s.k,
                          .a = operand(kLeft, w.a, bytes.a),
                          .a_stride = s.a_stride,
                          .b = operand(kRight, w.b, bytes.b),
                          .b_stride = s.b_stride,
                          .beta = s.add ? 1.0f : 0.0f,
                          .bias = in(w.bias),
                          .c = out(w.c),
                          .c_stride = s.c_stride};
    multiply(product);
    if (s.epilogue == Epilogue::kBiasRelu) k_.relu(s.m * s.n, out(w.c), out(w.c));
  }
  // A GPU's alone: matmuls add biases here.
  void run(const AddRow&, const Step&) {}
  void run(const SumRows& w, const Step&) { k_.sum_rows(w.rows, w.width, in(w.in), w.add, out(w.out)); }

  // ---- images

  static Windows windows(const ImageShape& s) {
    return {s.in_channels, s.height, s.width, s.kernel, s.stride, s.padding, s.out_height(), s.out_width()};
  }
  void run(const Convolve& w, const Step&) {
    if (grouped()) return groups_.run(w);
    float* const to = out(w.out);
    const std::size_t planes = samples() * w.shape.out_channels,
                      size = w.shape.out_size() / w.shape.out_channels;
    for (std::size_t plane = 0; w.bias && plane < planes; ++plane)
      std::fill_n(to + plane * size, size, in(w.bias)[plane % w.shape.out_channels]);
    convolutions_.forward(w.shape, in(w.in), w.weight.offset / sizeof(float), static_cast<bool>(w.bias), to);
    if (w.relu) k_.relu(planes * size, to, to);
  }
  void run(const ConvolveWeightGradient& w, const Step&) {
    if (grouped()) return groups_.run(w);
    const float* const d = in(w.out_gradient);
    convolutions_.weight_gradient(w.shape, in(w.in), d, w.add, out(w.weight_gradient));
    const std::size_t channels = w.shape.out_channels;
    for (std::size_t n = 0; w.bias_gradient && n < samples(); ++n)
      k_.sum_each_row(channels, w.shape.out_size() / channels, d + n * w.shape.out_size(), n > 0 || w.add,
                      out(w.bias_gradient));
  }
  void run(const ConvolveInGradient& w, const Step&) {
    if (grouped()) return groups_.run(w);
    convolutions_.in_gradient(w.shape, w.weight.offset / sizeof(float), in(w.out_gradient), w.add,
                              out(w.in_gradient));
  }

  void run(const Pool& w, const Step&) {
    if (grouped()) return groups_.run(w);
    for (std::size_t n = 0; n < samples(); ++n)
      k_.max_pool(windows(w.shape), in(w.in) + n * w.shape.in_size(), out(w.out) + n * w.shape.out_size());
  }
  void run(const PoolBackward& w, const Step&) {
    if (grouped()) return groups_.run(w);
    for (std::size_t n = 0; n < samples(); ++n) {
      const float* const x = in(w.in) + n * w.shape.in_size();
      float* const d = out(w.in_gradient) + n * w.shape.in_size();
      k_.max_pool_backward(windows(w.shape), x, in(w.out) + n * w.shape.out_size(),
                           in(w.out_gradient) + n * w.shape.out_size(), w.add, d);
      if (w.relu) k_.relu_backward(w.shape.in_size(), x, d, false, d);
    }
  }
  void run(const Average& w, const Step&) {
    float* const to = out(w.out);
    k_.sum_each_row(w.planes, w.pixels, in(w.in), false, to);
    for (std::size_t i = 0; i < w.planes; ++i) to[i] /= static_cast<float>(w.pixels);
  }
  void run(const AverageBackward& w, const Step&) {
    float* to = out(w.in_gradient);
    for (std::size_t i = 0; i < w.planes; ++i) {
      const float part = in(w.out_gradient)[i] / static_cast<float>(w.pixels);
      for (std::size_t pixel = 0; pixel < w.pixels; ++pixel, ++to) *to = w.add ? *to + part : part;
    }
  }

  // ---- rows and elements

  void run(const Normalize& w, const Step&) {
    if (w.right) k_.add(w.rows * w.width, in(w.left), in(w.right), out(w.in));
    k_.layer_norm(w.rows, w.width, w.epsilon, in(w.in), in(w.weight), in(w.bias), out(w.moments), out(w.out));
  }
  void run(const NormalizeBackward& w, const Step&) {
    k_.layer_norm_backward(w.rows, w.width, in(w.in), in(w.weight), in(w.moments), in(w.out_gradient), w.add,
                           out(w.in_gradient), w.add_parameters, out(w.weight_gradient),
                           out(w.bias_gradient));
  }

  void run(const BatchNormalize& w, const Step&) {
    const Planes planes{w.samples, w.channels, w.pixels};
    float* const moments = out(w.moments);
    if (in_lock_step_ && training_)
      norm_.make_moments(w);
    else if (training_)
      k_.batch_moments(planes, w.epsilon, in(w.in), moments);
    else
      for (std::size_t c = 0; c < w.channels; ++c)
        moments[3 * c] = in(w.mean)[c], moments[3 * c + 1] = 1 / std::sqrt(in(w.variance)[c] + w.epsilon);
    k_.batch_norm(planes, in(w.in), in(w.weight), in(w.bias), moments, out(w.out));
  }
  void run(const BatchNormalizeBackward& w, const Step&) {
    if (in_lock_step_) return norm_.make_in_gradient(w);
    const float* const moments = in(w.moments);
    k_.batch_norm_backward({w.samples, w.channels, w.pixels}, in(w.in), in(w.weight), moments,
                           in(w.out_gradient), w.add, out(w.in_gradient), w.add_parameters,
                           out(w.weight_gradient), out(w.bias_gradient));
    const auto n = static_cast<float>(w.samples);
    float *const means = out(w.sums), *const variances = means + w.channels;
    for (std::size_t c = 0; c < w.channels; ++c) {
      const float shift = moments[3 * c] - in(w.mean)[c];
      means[c] = n * shift;
      variances[c] = n * (moments[3 * c + 2] + shift * shift);
    }
  }

  void run(const Embed& w, const Step&) {
    const auto classes = static_cast<std::int32_t>(w.classes);
    for (std::size_t r = 0; r < w.rows; ++r) {
      const std::int32_t token = microbatch().tokens[r];
      if (token < 0 || token >= classes) throw wrong_token(token, classes);
      const float* const row = in(w.weight) + static_cast<std::size_t>(token) * w.width;
      float* const to = out(w.out) + r * w.width;
      if (w.position)
        k_.add(w.width, row, in(w.position) + r % w.positions * w.width, to);
      else
        std::copy_n(row, w.width, to);
    }
  }
  // Goes through the rows in order, so that each token's sum has a fixed order.
  void run(const EmbedBackward& w, const Step&) {
    for (std::size_t r = 0; r < w.rows; ++r) {
      float* const row = out(w.weight_gradient) + static_cast<std::size_t>(microbatch().tokens[r]) * w.width;
      k_.add(w.width, row, in(w.out_gradient) + r * w.width, row);
    }
  }

  void run(const Elementwise& w, const Step& step) {
    const float *const first = in(w.first), *const second = in(w.second);
    float* const to = out(w.out);
    using Kind = Elementwise::Kind;
    switch (w.kind) {
      case Kind::kRelu:
        return k_.relu(w.count, first, to);
      case Kind::kReluGradient:
        return k_.relu_backward(w.count, second, first, w.add, to);
      case Kind::kGelu:
        return k_.gelu(w.count, first, to);
      case Kind::kGeluGradient:
        return k_.gelu_backward(w.count, second, first, w.add, to);
      case Kind::kAdd:
        return k_.add(w.count, first, second, to);
      case Kind::kCopy:
        return copy(w, first, to);
      case Kind::kDropout:
        if (training_) return k_.dropout(w.count, dropout_words(step.node), w.probability, first, w.add, to);
        if (first != to) copy(w, first, to);
    }
  }
  void copy(const Elementwise& w, const float* from, float* to) const {
    w.add ? k_.add(w.count, to, from, to) : void(std::copy_n(from, w.count, to));
  }
  DropoutStream dropout_words(int node) const {
    const RandomStream::Words words = dropout_stream(microbatch().key, node).words();
    return {{words.key[0], words.key[1]}, words.a, words.b, words.use};
  }
  void run(const Clear& w, const Step&) { std::fill_n(out(w.out), w.bytes / sizeof(float), 0.0f); }

  // ---- attention

  // Calls each(first row of a sample, head, first query row, query rows).
  static void each_block(const auto& w, const auto& each) {
    for (std::size_t n = 0; n < w.samples; ++n)
      for (std::size_t head = 0; head < w.heads; ++head)
        for (std::size_t first = 0; first < w.tokens; first += kQueryRows)
          each(n * w.tokens, head, first, std::min(kQueryRows, w.tokens - first));
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
  static QueryBlock block_of(const auto& w, std::size_t sample_row, std::size_t head, std::size_t first,
                             std::size_t queries) {
    const std::size_t width = w.width, stride = 3 * width, size = width / w.heads, at = head * size;
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
  const Element* rounded(const QueryBlock& b, Operand number, const float* scores) {
    return matmuls_.operand(number, scores, b.queries * b.keys);
  }

  void run(const AttentionForward& w, const Step&) {
    const std::size_t count = w.samples * w.tokens * w.width;
    const Element* const qkv = matmuls_.operand(kLeft, in(w.qkv), 3 * count);
    each_block(w, [&](std::size_t sample_row, std::size_t head, std::size_t first, std::size_t queries) {
      const QueryBlock b = block_of(w, sample_row, head, first, queries);
      attend(b, first, qkv);
      multiply({.m = b.queries,
                .n = b.size,
                .k = b.keys,
                .a = rounded(b, kScores, scores_.data()),
                .a_stride = b.keys,
                .b = qkv + b.value,
                .b_stride = b.stride,
                .c = out(w.out) + b.out,
                .c_stride = b.width});
    });
  }

  // Computes the scores again: kept, they would take rows^2 floats a head.
  void run(const AttentionBackward& w, const Step&) {
    const std::size_t count = w.samples * w.tokens * w.width;
    const Element* const qkv = matmuls_.operand(kLeft, in(w.qkv), 3 * count);
    float* const d_qkv = out(w.qkv_gradient);
    const Element* const d_out = matmuls_.operand(kRight, in(w.out_gradient), count);
    if (!w.add) std::fill_n(d_qkv, 3 * count, 0.0f);
    float* const d_scores = scores_.data() + plan().scores / 2;
    each_block(w, [&](std::size_t sample_row, std::size_t head, std::size_t first, std::size_t queries) {
      const QueryBlock b = block_of(w, sample_row, head, first, queries);
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

  // ---- the loss

  void run(const CrossEntropy& w, const Step&) {
    float* const logits = out(w.logits);
    const std::size_t first = first_row(w);
    if (!grouped()) return add_losses(w, first, w.rows, logits);
    for (std::size_t row = 0; row < w.rows; row += grouped::kGroup) {
      groups_.to_rows(w.classes, logits + row * w.classes, columns());
      add_losses(w, first + row, grouped::kGroup, columns());
      if (w.gradient) groups_.from_rows(first + row, w.classes, columns(), logits + row * w.classes);
    }
  }
  // Of m rows from `first` on, as far as they are real; their logits become the loss' gradient.
  void add_losses(const CrossEntropy& w, std::size_t first, std::size_t m, float* logits) {
    const auto classes = static_cast<std::int32_t>(w.classes);
    const std::size_t real = static_cast<std::size_t>(microbatch().samples) * program().sample.targets;
    for (std::size_t row = first; row < std::min(first + m, real); ++row) {
      const std::int32_t target = microbatch().targets[row];
      if (target < 0 || target >= classes) throw wrong_target(target, classes);
      std::int32_t largest = 0;
      float* const of_row = logits + (row - first) * w.stride;
      if (teacher_ && w.gradient)
        loss_ +=
            k_.distill(w.classes, target, program().label_smoothing, program().teacher->temperature,
                       program().teacher->alpha, teacher_->logits_of(row), taught_.data(), of_row, &largest);
      else
        loss_ += k_.classify(w.classes, target, program().label_smoothing, w.gradient, of_row, &largest);
      correct_ += largest == target;
    }
    statistics_[0] = static_cast<float>(loss_), statistics_[1] = static_cast<float>(correct_);
  }

  void run(const Ready& w, const Step&) {
    for (int bucket = w.first_bucket; bucket < w.end_bucket; ++bucket) (*ready_)(bucket);
  }
  void run(const Join&, const Step&) {}

  const Kernels& k_ = kernels();
  const GroupOps groups_{*this};
  GroupNorm norm_{*this};
  const Buffer scores_;  // attention's scores, and their gradients
  Matmuls matmuls_{program().bf16};
  Convolutions<Matmuls> convolutions_{matmuls_, columns()};
  LaneClock clock_;
  const std::unique_ptr<Stream> stream_ = make_cpu_arithmetic()->make_stream();
  std::map<std::size_t, const Schedule> schedules_;  // by samples(): the last microbatch may have fewer
  const float* weights_ = nullptr;                   // flat; the caller's, or rounded_
  const Buffer rounded_{program().quantize_aware ? program().size : 0};

  std::unique_ptr<PlannedLane> teacher_;  // null: none
  Buffer taught_;                         // two rows of its logits

  // Of the current microbatch.
  const Schedule* steps_ = nullptr;
  std::size_t done_ = 0;  // steps of its forward and backward
  bool in_lock_step_ = false, summed_ = false;
  const Step* before_ = nullptr;
  bool training_ = false;
  const std::function<void(int bucket)>* ready_ = nullptr;
  float* statistics_ = nullptr;
  double loss_ = 0;
  int correct_ = 0;
  float unread_[kStatisticsFloats];  // a teacher's
  const Step* next_ = nullptr;       // of its schedule's `evaluate`
  CrossEntropy chunk_ = {};          // the step in front of `next_`, whose logits are in memory
};

}  // namespace
}  // namespace planned

std::unique_ptr<Lane> make_planned_lane(const Program& program, int capacity, const PlanFor& layout,
                                        LaneClock clock, const PlanFor& of_teacher) {
  using namespace planned;
  if (program.bf16 && onednn::has_amx())
    return std::make_unique<PlannedLane<AmxMatmuls>>(program, capacity, layout, std::move(clock), of_teacher);
  return std::make_unique<PlannedLane<KernelMatmuls>>(program, capacity, layout, std::move(clock),
                                                      of_teacher);
}

}  // namespace dtrun::worker
