// Launches the steps of a schedule, one by one: by cuBLASLt, by cuDNN, or by the own kernels, on the stream
// that the caller passes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "worker/device/cuda/arithmetic.h"
#include "worker/device/cuda/cudnn_ops.h"
#include "worker/device/cuda/failure.h"
#include "worker/device/cuda/kernels/batch_norm.h"
#include "worker/device/cuda/kernels/columns.h"
#include "worker/device/cuda/kernels/cross_entropy.h"
#include "worker/device/cuda/kernels/elementwise.h"
#include "worker/device/cuda/kernels/embedding.h"
#include "worker/device/cuda/kernels/images.h"
#include "worker/device/cuda/kernels/norm.h"
#include "worker/device/cuda/lane/attention.h"
#include "worker/device/cuda/lane/convolution.h"
#include "worker/device/cuda/lane/memory.h"
#include "worker/device/cuda/matmul/matmuls.h"
#include "worker/device/cuda/plan_file.h"
#include "worker/device/cuda/steps.h"
#include "worker/device/cuda/trial.h"
#include "worker/device/cuda/use.h"

namespace dtrun::worker::cuda {

inline PoolShape pool_of(const ImageShape& image) {
  return {.samples = image.samples,
          .channels = image.in_channels,
          .height = image.height,
          .width = image.width,
          .kernel = image.kernel,
          .stride = image.stride,
          .padding = image.padding};
}

// T: float or __nv_bfloat16. Used by one thread at a time.
template <typename T>
class StepLauncher {
 public:
  static constexpr bool kBf16 = sizeof(T) == 2;

  // `rows`: those with a target in a whole microbatch. REQUIRES: the references outlive this.
  StepLauncher(CudaArithmetic& arithmetic, std::size_t rows, float label_smoothing, UseRecord& use)
      : arithmetic_(arithmetic),
        use_(use),
        label_smoothing_(label_smoothing),
        rows_(rows),
        of_rows_(arithmetic.allocate_bytes(2 * rows * sizeof(float), "the losses of a microbatch")) {}

  Matmuls& matmuls() { return matmuls_; }

  // Chooses the shapes that cuDNN computes, and records them in `use`. The own kernels compute the others,
  // slower but as exactly. `plans`: as in make_cuda_lane().
  void choose_cudnn(const Schedule& schedule, int gpu, const std::filesystem::path& plans, Trial& trial) {
    std::set<AttentionShape> attention;
    std::map<ConvShape, bool> convolutions;  // and whether they need the input's gradient
    schedule.each_step([&](const Step& step) {
      if (const auto* const attend = std::get_if<AttentionForward>(&step.work); attend != nullptr && kBf16)
        attention.insert(shape_of(*attend));
      if (const auto* const convolve = std::get_if<Convolve>(&step.work))
        convolutions.try_emplace(convolution_of(convolve->shape), false);
      if (const auto* const convolve = std::get_if<ConvolveInGradient>(&step.work))
        convolutions[convolution_of(convolve->shape)] |= !convolve->add;
    });
    if (attention.empty() && convolutions.empty()) return;
    if (!attention.empty()) use_.set("attention", "cuDNN " + cudnn_version());
    if (!convolutions.empty()) use_.set("convolution", "cuDNN " + cudnn_version());
    const auto own = [&](const std::string& what, const std::string& why) {
      if (why.empty()) return;
      use_.set(what, kOwnKernels);
      use_.fall_back(what + " is computed by own kernels, not by cuDNN: " + why);
    };
    const std::string before = read_plans(plans);
    cudnn_ = make_cudnn_ops(gpu, before);
    if (!cudnn_) {
      if (!attention.empty()) own("attention", why_no_cudnn_ops());
      if (!convolutions.empty()) own("convolution", why_no_cudnn_ops());
      return;
    }
    for (const AttentionShape& shape : attention) own("attention", attention_.use(*cudnn_, shape, trial));
    for (const auto& [shape, with_input_gradient] : convolutions)
      own("convolution", convolutions_.use(*cudnn_, shape, with_input_gradient, trial));
    const std::string now = cudnn_->stored();
    if (!now.empty() && now != before) keep_plans(plans, now);
  }

  // Reserves the workspace of steps, one for each stream, since steps of one stream follow each other.
  // `streams`: the number of streams with steps that need a workspace.
  void make_workspaces(const Schedule& schedule, std::size_t streams) {
    std::vector<std::size_t> bytes(streams, 0);
    schedule.each_step([&](const Step& step) {
      const std::size_t needed =
          std::visit([this](const auto& work) { return this->workspace(work); }, step.work);
      if (needed > 0) bytes[step.stream] = std::max(bytes[step.stream], needed);
    });
    for (const std::size_t needed : bytes)
      workspaces_.push_back(arithmetic_.allocate_bytes(needed, "the work of matmuls and sums"));
  }

  // The memory of later launches, and whether dropout drops.
  LaneMemory<T>& memory() { return at_; }
  void set_training(bool training) { training_ = training; }
  // The losses of later launches have a teacher's part, by these logits.
  void learn_from(const TeacherLogits<T>& teacher) { teacher_ = teacher; }

  // Enqueues the step's work on `stream`; nothing for Ready and Join.
  void launch(const Step& step, cudaStream_t on) {
    node_ = step.node;
    workspace_ =
        step.stream < static_cast<int>(workspaces_.size()) ? workspaces_[step.stream].data() : nullptr;
    std::visit([&](const auto& work) { enqueue(work, on); }, step.work);
  }

 private:
  // Bytes of a step's workspace.
  std::size_t workspace(const Matmul& w) { return matmuls_.workspace(w.shape); }
  std::size_t workspace(const SumRows& w) const {
    return sum_rows_workspace(w.rows, w.width) * sizeof(float);
  }
  std::size_t workspace(const NormalizeBackward& w) const {
    return layer_norm_backward_workspace(w.rows, w.width) * sizeof(float);
  }
  std::size_t workspace(const EmbedBackward& w) const {
    return embedding_backward_workspace(w.rows, w.width) * sizeof(float);
  }
  std::size_t workspace(const AttentionForward& w) const { return attention_.workspace(w); }
  std::size_t workspace(const AttentionBackward& w) const { return attention_.workspace(w); }
  std::size_t workspace(const Convolve& w) const { return convolutions_.workspace(w); }
  std::size_t workspace(const ConvolveInGradient& w) const { return convolutions_.workspace(w); }
  std::size_t workspace(const ConvolveWeightGradient& w) const { return convolutions_.workspace(w); }
  std::size_t workspace(const auto&) const { return 0; }

  void enqueue(const Matmul& w, cudaStream_t on) {
    matmuls_.multiply(w.shape,
                      {.a = at_.bytes(w.a),
                       .b = at_.bytes(w.b),
                       .c = at_.bytes(w.c),
                       .bias = at_.bytes(w.bias),
                       .aux = at_.bytes(w.aux)},
                      workspace_, on);
  }
  void enqueue(const SumRows& w, cudaStream_t on) {
    sum_rows(on, w.rows, w.width, w.stride, at_.values(w.in), w.add, at_.floats(w.out), workspace_);
    check_launch("sum_rows");
  }
  void enqueue(const AddRow& w, cudaStream_t on) {
    add_row(on, w.rows, w.width, w.stride, at_.values(w.row), at_.values(w.values));
    check_launch("add_row");
  }
  void enqueue(const Normalize& w, cudaStream_t on) {
    if (w.right)
      residual_layer_norm(on, w.rows, w.width, w.epsilon, at_.values(w.left), at_.values(w.right),
                          at_.floats(w.weight), at_.floats(w.bias), at_.values(w.in), at_.floats(w.moments),
                          at_.values(w.out));
    else
      layer_norm(on, w.rows, w.width, w.epsilon, at_.values(w.in), at_.floats(w.weight), at_.floats(w.bias),
                 at_.floats(w.moments), at_.values(w.out));
    check_launch("layer_norm");
  }
  void enqueue(const NormalizeBackward& w, cudaStream_t on) {
    layer_norm_backward(on, w.rows, w.width, at_.values(w.in), at_.floats(w.weight), at_.floats(w.moments),
                        at_.values(w.out_gradient), w.add, at_.values(w.in_gradient), w.add_parameters,
                        at_.floats(w.weight_gradient), at_.floats(w.bias_gradient), workspace_);
    check_launch("layer_norm_backward");
  }
  void enqueue(const BatchNormalize& w, cudaStream_t on) {
    batch_norm(on, {w.samples, w.channels, w.pixels}, at_.microbatch.real_rows, training_, w.epsilon,
               at_.values(w.in), at_.floats(w.weight), at_.floats(w.bias), at_.floats(w.mean),
               at_.floats(w.variance), at_.floats(w.moments), at_.values(w.out));
    check_launch("batch_norm");
  }
  void enqueue(const BatchNormalizeBackward& w, cudaStream_t on) {
    batch_norm_backward(on, {w.samples, w.channels, w.pixels}, at_.microbatch.real_rows, at_.values(w.in),
                        at_.floats(w.weight), at_.floats(w.mean), at_.floats(w.moments),
                        at_.values(w.out_gradient), w.add, at_.values(w.in_gradient), w.add_parameters,
                        at_.floats(w.weight_gradient), at_.floats(w.bias_gradient), at_.floats(w.sums));
    check_launch("batch_norm_backward");
  }
  void enqueue(const Embed& w, cudaStream_t on) {
    embedding(on, w.rows, w.width, at_.microbatch.tokens, at_.values(w.weight), at_.values(w.position),
              w.positions, at_.values(w.out));
    check_launch("embedding");
  }
  void enqueue(const EmbedBackward& w, cudaStream_t on) {
    embedding_backward(on, w.width, at_.microbatch.pieces, at_.values(w.out_gradient), w.add,
                       at_.floats(w.weight_gradient), workspace_);
    check_launch("embedding_backward");
  }
  void enqueue(const AttentionForward& w, cudaStream_t on) {
    attention_.forward(on, shape_of(w), at_.values(w.qkv), at_.values(w.out), at_.floats(w.sums), workspace_);
  }
  void enqueue(const AttentionBackward& w, cudaStream_t on) {
    attention_.backward(on, shape_of(w), at_.values(w.qkv), at_.values(w.out), at_.values(w.out_gradient),
                        at_.floats(w.sums), at_.values(w.qkv_gradient), workspace_);
  }
  void enqueue(const CrossEntropy& w, cudaStream_t on) {
    float *const loss = of_rows_.data(), *const correct = loss + rows_;
    if (w.gradient && teacher_.logits != nullptr)
      distill(on, w.rows, at_.microbatch.real_rows, w.classes, w.stride, at_.microbatch.targets,
              label_smoothing_, teacher_, at_.values(w.logits), loss, correct);
    else
      classify(on, w.rows, at_.microbatch.real_rows, w.classes, w.stride, at_.microbatch.targets,
               label_smoothing_, w.gradient, at_.values(w.logits), loss, correct);
    statistics(on, w.rows, at_.microbatch.real_rows, loss, correct, at_.out);
    check_launch("classify");
  }
  void enqueue(const Elementwise& w, cudaStream_t on) {
    const T *const first = at_.values(w.first), *const second = at_.values(w.second);
    T* const out = at_.values(w.out);
    using Kind = Elementwise::Kind;
    switch (w.kind) {
      case Kind::kRelu:
        relu(on, w.count, first, out);
        break;
      case Kind::kReluGradient:
        relu_backward(on, w.count, second, first, w.add, out);
        break;
      case Kind::kGelu:
        gelu(on, w.count, first, out);
        break;
      case Kind::kGeluGradient:
        gelu_backward(on, w.count, second, first, w.add, out);
        break;
      case Kind::kAdd:
        add(on, w.count, first, second, out);
        break;
      case Kind::kCopy:
        copy(w, first, out, on);
        break;
      case Kind::kDropout:
        if (training_)
          dropout(on, w.count, at_.microbatch.dropout + node_, w.probability, first, w.add, out);
        else if (first != out)
          copy(w, first, out, on);
        break;
    }
    check_launch("an operation on each element");
  }
  static void copy(const Elementwise& w, const T* from, T* to, cudaStream_t on) {
    if (w.add)
      accumulate(on, w.count, from, to);
    else
      check(cudaMemcpyAsync(to, from, w.count * sizeof(T), cudaMemcpyDeviceToDevice, on), "copying");
  }
  void enqueue(const Convolve& w, cudaStream_t on) {
    convolutions_.forward(on, w, at_.values(w.in), at_.values(w.weight), at_.floats(w.bias),
                          at_.values(w.out), workspace_);
  }
  void enqueue(const ConvolveInGradient& w, cudaStream_t on) {
    convolutions_.backward_input(on, w, at_.values(w.weight), at_.values(w.out_gradient),
                                 at_.values(w.in_gradient), workspace_);
  }
  void enqueue(const ConvolveWeightGradient& w, cudaStream_t on) {
    convolutions_.backward_parameters(on, w, at_.values(w.in), at_.values(w.out_gradient),
                                      at_.floats(w.weight_gradient), at_.floats(w.bias_gradient), workspace_);
  }
  void enqueue(const Pool& w, cudaStream_t on) {
    max_pool(on, pool_of(w.shape), at_.values(w.in), at_.values(w.out));
    check_launch("max_pool");
  }
  void enqueue(const PoolBackward& w, cudaStream_t on) {
    max_pool_backward(on, pool_of(w.shape), at_.values(w.in), at_.values(w.out_gradient), w.add,
                      at_.values(w.in_gradient));
    check_launch("max_pool_backward");
  }
  void enqueue(const Average& w, cudaStream_t on) {
    average(on, w.planes, w.pixels, at_.values(w.in), at_.values(w.out));
    check_launch("average");
  }
  void enqueue(const AverageBackward& w, cudaStream_t on) {
    average_backward(on, w.planes, w.pixels, at_.values(w.out_gradient), w.add, at_.values(w.in_gradient));
    check_launch("average_backward");
  }
  void enqueue(const Clear& w, cudaStream_t on) {
    check(cudaMemsetAsync(at_.bytes(w.out), 0, w.bytes, on), "clearing memory");
  }
  static void enqueue(const Ready&, cudaStream_t) {}
  static void enqueue(const Join&, cudaStream_t) {}

  CudaArithmetic& arithmetic_;
  UseRecord& use_;
  Matmuls matmuls_;
  std::unique_ptr<CudnnOps> cudnn_;  // null: not wanted, or not available
  AttentionOps<T> attention_;
  ConvolutionOps<T> convolutions_;
  const float label_smoothing_;
  const std::size_t rows_;
  const Buffer of_rows_;            // losses, then hits
  std::vector<Buffer> workspaces_;  // one for each stream
  LaneMemory<T> at_;
  bool training_ = false;
  TeacherLogits<T> teacher_;  // without logits: there is none

  // The current step's.
  int node_ = 0;
  float* workspace_ = nullptr;
};

}  // namespace dtrun::worker::cuda
