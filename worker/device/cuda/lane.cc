// A lane on a GPU: carries out a schedule. Everything is enqueued and nothing waited for, but for an
// evaluation's result. A microbatch is enqueued step by step the first time that its results go to some
// memory; the second time that is recorded as a graph, which is launched from then on.
#include "worker/device/cuda/lane.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "proto/core/exit_codes.h"
#include "worker/base/error.h"
#include "worker/device/cuda/attention.h"
#include "worker/device/cuda/convolution.h"
#include "worker/device/cuda/cudnn_ops.h"
#include "worker/device/cuda/epilogues.h"
#include "worker/device/cuda/failure.h"
#include "worker/device/cuda/graph.h"
#include "worker/device/cuda/kernels/classifier.h"
#include "worker/device/cuda/kernels/columns.h"
#include "worker/device/cuda/kernels/elementwise.h"
#include "worker/device/cuda/kernels/embedding.h"
#include "worker/device/cuda/kernels/images.h"
#include "worker/device/cuda/kernels/launches.h"
#include "worker/device/cuda/kernels/norm.h"
#include "worker/device/cuda/microbatch_upload.h"
#include "worker/device/cuda/plan_file.h"
#include "worker/device/cuda/product_check.h"
#include "worker/device/cuda/products.h"
#include "worker/device/cuda/schedule/schedule.h"
#include "worker/device/cuda/timing/nvtx.h"
#include "worker/device/cuda/timing/step_watch.h"

namespace dtrun::worker::cuda {
namespace {

PoolShape pool_of(const ImageShape& image) {
  return {.samples = image.samples,
          .channels = image.in_channels,
          .height = image.height,
          .width = image.width,
          .kernel = image.kernel};
}

bool graphs_wanted() {
  const char* const value = std::getenv("DTRUN_CUDA_GRAPHS");
  return value == nullptr || std::string(value) != "0";
}

// Bits do not depend on it; time does.
int side_streams_wanted() {
  constexpr int kUsual = 1;
  const char* const value = std::getenv("DTRUN_CUDA_SIDE_STREAMS");
  if (value == nullptr) return kUsual;
  if (value[0] < '0' || value[0] > '8' || value[1] != '\0')
    throw WorkerError(kExitConfig,
                      std::string("DTRUN_CUDA_SIDE_STREAMS=") + value + " is no number from 0 to 8");
  return value[0] - '0';
}

template <typename T>
class CudaLane final : public Lane {
 public:
  static constexpr bool kBf16 = sizeof(T) == 2;

  CudaLane(const Program& program, int capacity, int gpu, CudaArithmetic& arithmetic,
           const Algorithms& algorithms, const std::filesystem::path& plans, UseRecord& use)
      : program_(program),
        arithmetic_(arithmetic),
        use_(use),
        stream_(gpu),
        gradients_(gpu),
        products_(algorithms),
        capacity_(capacity),
        schedule_(make_checked_schedule()),
        watch_(program_, schedule_, arithmetic.timer()),
        arena_(make_arena()),
        upload_(program_, capacity, gpu, arithmetic, stream_),
        there_(upload_.there()),
        rows_(static_cast<std::size_t>(capacity) * program_.sample.targets),
        of_rows_(arithmetic.allocate_bytes(2 * rows_ * sizeof(float), "the losses of a microbatch")),
        results_(arithmetic.allocate(Where::kDevice, kStatisticsFloats)),
        host_results_(arithmetic.allocate(Where::kHost, kStatisticsFloats)) {
    for (int i = 0; i < side_stream_count_; ++i) side_streams_.push_back(std::make_unique<CudaStream>(gpu));
    name_streams();
    Trial trial(arithmetic_, stream_, arena_.data(), schedule_.arena);
    choose_cudnn(gpu, plans, trial);
    tell_launches();
    make_workspaces();
    if (kBf16 && program_.sample.input == SampleSpec::Input::kValues)
      samples_ =
          arithmetic.allocate_bytes(capacity * program_.sample.shape.size() * sizeof(T), "a microbatch");
    each_step([this](const Step& step) {
      if (step.awaited) done_.try_emplace(&step);
      if (std::holds_alternative<Ready>(step.work)) told_.try_emplace(&step);
    });
  }
  // What is enqueued uses the memory that is freed here.
  ~CudaLane() override {
    try {
      stream_.wait();
      for (const auto& stream : side_streams_) stream->wait();
      gradients_.wait();
    } catch (const WorkerError&) {
      // The GPU failed: it does nothing more.
    }
  }

  Stream& stream() override { return stream_; }
  Stream& gradients() override { return gradients_; }

  void weights_changed(const float* weights) override {
    const void* matrices = weights;
    if constexpr (kBf16) matrices = arithmetic_.rounded(weights, program_.size, stream_);
    if (parameters_ == weights && matrices_ == matrices) return;
    stream_.wait();
    graphs_.clear();
    parameters_ = weights, matrices_ = matrices;
  }

  void prepare(const Microbatch& microbatch) override { upload_.prepare(microbatch); }
  bool is_prepared(const MicrobatchKey& key) const override { return upload_.is_prepared(key); }

  void train(const Microbatch& microbatch, float* out,
             const std::function<void(int bucket)>& ready) override {
    ready_ = &ready;
    training_ = true;
    run(microbatch, schedule_.backward, out);
  }

  MicrobatchStats evaluate(const Microbatch& microbatch) override {
    training_ = false;
    run(microbatch, schedule_.evaluate, results_.data());
    arithmetic_.copy(stream_, host_results_.data(), results_.data(), kStatisticsFloats);
    stream_.wait();
    return {.loss = host_results_.data()[0], .correct = host_results_.data()[1]};
  }

  // The device's timer tells more.
  void record(std::vector<NodeTime>*) override {}

 private:
  // Results go to some buffers in turn: more than the levels of any tree of leaves.
  static constexpr std::size_t kMostGraphs = 64;

  void name_streams() {
    stream_.set_name("lane");
    gradients_.set_name("buckets");
    for (int i = 0; i < side_stream_count_; ++i) side_streams_[i]->set_name("side " + std::to_string(i + 1));
  }

  // Its products are right on this GPU; what goes wrong as one product with a bias, say, is done apart.
  Schedule make_checked_schedule() {
    const Buffer workspace = arithmetic_.try_allocate_bytes(Products::kLargestWorkspace);
    Trial trial(arithmetic_, stream_, nullptr, 0);
    ProductCheck check(products_, trial, workspace ? workspace.data() : nullptr);
    const Epilogues epilogues = Epilogues::wanted();
    int asked = 0, fused = 0;
    const auto multiplies = [&](const MatmulShape& shape) {
      if (!epilogues.may(shape.epilogue)) return false;
      const bool passes = check.passes(shape);
      asked += shape.epilogue != Epilogue::kNone;
      fused += shape.epilogue != Epilogue::kNone && passes;
      return passes;
    };
    Schedule schedule =
        make_schedule(program_, make_plan(program_, capacity_, plan_for_gpu(kBf16)), capacity_,
                      {.bf16 = kBf16, .multiplies = multiplies, .side_streams = side_stream_count_});
    check.require(schedule);
    const std::string of_all = std::to_string(fused) + " of " + std::to_string(asked) + " products";
    use_.set("cublaslt", cublas_lt().version + " (" + cublas_lt().file + ")");
    use_.set("fused_epilogues", of_all);
    // Of fp32 the library has some only.
    if (kBf16 && fused < asked)
      use_.fall_back("cuBLASLt adds biases, or what else follows a product, to " + of_all +
                     " only: kernels of our own do the rest");
    return schedule;
  }

  Buffer make_arena() {
    Buffer arena = arithmetic_.try_allocate_bytes(schedule_.arena);
    if (!arena) {
      const int fits = samples_that_fit(free_memory());
      out_of_memory("the activations of " + std::to_string(capacity_) + " samples (train.micro_batch_size)",
                    schedule_.arena,
                    fits == 0 ? ""
                              : "a train.micro_batch_size of " + std::to_string(fits) +
                                    " may fit, and more with model.gradient_checkpointing (gpt2)");
    }
    return arena;
  }
  int samples_that_fit(std::size_t bytes) const {
    int fits = 0;
    for (unsigned step = std::bit_floor(static_cast<unsigned>(capacity_)); step > 0; step /= 2) {
      const int tried = fits + static_cast<int>(step);
      if (tried < capacity_ && make_plan(program_, tried, plan_for_gpu(kBf16)).arena * sizeof(T) <= bytes)
        fits = tried;
    }
    return fits;
  }

  void each_step(const auto& visit) const {
    for (const auto* const steps : {&schedule_.forward, &schedule_.evaluate, &schedule_.backward})
      for (const Step& step : *steps) visit(step);
  }

  // Which shapes cuDNN computes. Where it has none, the own kernels are slower, and as right.
  void choose_cudnn(int gpu, const std::filesystem::path& plans, Trial& trial) {
    std::set<AttentionShape> attention;
    std::map<ConvShape, bool> convolutions;  // and whether the input's gradient is asked for
    each_step([&](const Step& step) {
      if (const auto* const attend = std::get_if<Attend>(&step.work); attend != nullptr && kBf16)
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

  void tell_launches() {
    use_.set("graphs", graphs_wanted_ ? "not launched yet" : "switched off by DTRUN_CUDA_GRAPHS");
    use_.set("side_streams", std::to_string(side_stream_count_));
    use_.set("programmatic_launches", programmatic_launches() ? "used" : why_not_programmatic());
  }

  // Bytes that a step needs besides.
  std::size_t workspace(const Multiply& w) { return products_.workspace(w.shape); }
  std::size_t workspace(const SumRows& w) const {
    return sum_rows_workspace(w.rows, w.width) * sizeof(float);
  }
  std::size_t workspace(const NormalizeBackward& w) const {
    return layer_norm_backward_workspace(w.rows, w.width) * sizeof(float);
  }
  std::size_t workspace(const EmbedBackward& w) const {
    return embedding_backward_workspace(w.rows, w.width) * sizeof(float);
  }
  std::size_t workspace(const Attend& w) const { return attention_.workspace(w); }
  std::size_t workspace(const AttendBackward& w) const { return attention_.workspace(w); }
  std::size_t workspace(const Convolve& w) const { return convolutions_.workspace(w); }
  std::size_t workspace(const ConvolveInGradient& w) const { return convolutions_.workspace(w); }
  std::size_t workspace(const ConvolveWeightGradient& w) const { return convolutions_.workspace(w); }
  std::size_t workspace(const auto&) const { return 0; }

  void make_workspaces() {
    std::vector<std::size_t> bytes(1 + side_stream_count_, 0);
    each_step([&](const Step& step) {
      const std::size_t needed =
          std::visit([this](const auto& work) { return this->workspace(work); }, step.work);
      if (needed > 0) bytes[step.stream] = std::max(bytes[step.stream], needed);
    });
    for (const std::size_t needed : bytes)
      workspaces_.push_back(arithmetic_.allocate_bytes(needed, "the work of products and sums"));
  }

  // `rest`: what follows forward.
  void run(const Microbatch& microbatch, const std::vector<Step>& rest, float* out) {
    const nvtx::Range range("microbatch");
    upload_.upload(microbatch);
    out_ = out;
    // Each operation is timed by itself.
    const Graph* const graph = !arithmetic_.timer().on() && graphs_wanted_ ? graph_of(rest) : nullptr;
    if (graph == nullptr) return enqueue_all(rest);
    graph->launch(stream_);
    use_.set("graphs", "used");
    for (const Step& step : rest) {
      const auto* const ready = std::get_if<Ready>(&step.work);
      if (ready == nullptr) continue;
      told_.at(&step).make_wait(gradients_.handle());
      tell(*ready);
    }
  }

  // What to launch for results that go to `out_`, if it is known.
  const Graph* graph_of(const std::vector<Step>& rest) {
    const auto found = graphs_.find(out_);
    if (found == graphs_.end()) {
      if (graphs_.size() < kMostGraphs) graphs_.try_emplace(out_);
      return nullptr;
    }
    if (found->second) return &found->second;
    std::string why;
    found->second = recorded(rest, &why);
    if (!found->second && programmatic_launches()) {
      launch_one_by_one();
      const std::string first = why;
      found->second = recorded(rest, &why);
      if (found->second)
        use_.fall_back(
            "kernels are launched one after the other, since they cannot be recorded as a graph otherwise: " +
            first);
      use_.set("programmatic_launches", "no graph has them");
    }
    if (found->second) return &found->second;
    graphs_wanted_ = false;
    use_.set("graphs", "none can be recorded");
    use_.fall_back("microbatches are launched kernel by kernel, since they cannot be recorded as a graph: " +
                   why);
    return nullptr;
  }

  Graph recorded(const std::vector<Step>& rest, std::string* why) {
    recording_ = true;
    Graph graph = Graph::record(
        stream_, [&] { enqueue_all(rest); }, why);
    recording_ = false;
    return graph;
  }

  void enqueue_all(const std::vector<Step>& rest) {
    if constexpr (kBf16) {
      if (samples_) {
        const std::size_t count = capacity_ * program_.sample.shape.size();
        const EventTimer::Scope timed(arithmetic_.timer(), stream_, [&] {
          return vector_op("samples in bf16", count * sizeof(float), count * sizeof(T));
        });
        to_bf16(stream_.handle(), count, there_.values, reinterpret_cast<T*>(samples_.data()));
        check_launch("to_bf16");
      }
    }
    {
      const nvtx::Range range("forward");
      enqueue_steps(schedule_.forward);
    }
    const nvtx::Range range(training_ ? "backward" : "loss");
    enqueue_steps(rest);
  }

  CudaStream& stream_of(const Step& step) {
    if (step.stream == 0) return stream_;
    return step.stream <= side_stream_count_ ? *side_streams_[step.stream - 1] : gradients_;
  }

  void enqueue_steps(const std::vector<Step>& steps) {
    for (const Step& step : steps) {
      CudaStream& on = stream_of(step);
      for (const int before : step.after) done_.at(&steps[before]).make_wait(on.handle());
      step_ = &step;
      workspace_ = step.stream <= side_stream_count_ ? workspaces_[step.stream].data() : nullptr;
      {
        const StepWatch::Scope watched(watch_, step, on);
        std::visit([&](const auto& work) { enqueue(work, on.handle()); }, step.work);
      }
      if (step.awaited) done_.at(&step).record(on.handle());
    }
  }

  void tell(const Ready& ready) {
    for (int bucket = ready.first_bucket; bucket < ready.end_bucket; ++bucket) (*ready_)(bucket);
  }

  // ---- where things lie

  std::byte* bytes(const Place& place) const {
    switch (place.space) {
      case Space::kNone:
        return nullptr;
      case Space::kArena:
        return as_bytes(arena_.data()) + place.offset;
      case Space::kSamples:
        return as_bytes(kBf16 ? samples_.data() : there_.values) + place.offset;
      case Space::kTokens:
        return as_bytes(there_.tokens) + place.offset;
      case Space::kTargets:
        return as_bytes(there_.targets) + place.offset;
      case Space::kParameters:
        return as_bytes(parameters_) + place.offset;
      case Space::kMatrices:
        return as_bytes(matrices_) + place.offset;
      case Space::kGradient:
        return as_bytes(out_ + kStatisticsFloats) + place.offset;
      case Space::kStatistics:
        return as_bytes(out_) + place.offset;
    }
    return nullptr;
  }
  // A step only writes what its schedule says.
  static std::byte* as_bytes(const void* memory) {
    return static_cast<std::byte*>(const_cast<void*>(memory));
  }
  T* values(const Place& place) const { return reinterpret_cast<T*>(bytes(place)); }
  float* floats(const Place& place) const { return reinterpret_cast<float*>(bytes(place)); }

  // ---- steps

  void enqueue(const Multiply& w, cudaStream_t on) {
    products_.multiply(
        w.shape,
        {.a = bytes(w.a), .b = bytes(w.b), .c = bytes(w.c), .bias = bytes(w.bias), .aux = bytes(w.aux)},
        workspace_, on);
  }
  void enqueue(const SumRows& w, cudaStream_t on) {
    sum_rows(on, w.rows, w.width, w.stride, values(w.in), w.add, floats(w.out), workspace_);
    check_launch("sum_rows");
  }
  void enqueue(const AddRow& w, cudaStream_t on) {
    add_row(on, w.rows, w.width, w.stride, values(w.row), values(w.values));
    check_launch("add_row");
  }
  void enqueue(const Normalize& w, cudaStream_t on) {
    if (w.right)
      residual_layer_norm(on, w.rows, w.width, w.epsilon, values(w.left), values(w.right), floats(w.weight),
                          floats(w.bias), values(w.in), floats(w.moments), values(w.out));
    else
      layer_norm(on, w.rows, w.width, w.epsilon, values(w.in), floats(w.weight), floats(w.bias),
                 floats(w.moments), values(w.out));
    check_launch("layer_norm");
  }
  void enqueue(const NormalizeBackward& w, cudaStream_t on) {
    layer_norm_backward(on, w.rows, w.width, values(w.in), floats(w.weight), floats(w.moments),
                        values(w.out_gradient), w.add, values(w.in_gradient), w.add_parameters,
                        floats(w.weight_gradient), floats(w.bias_gradient), workspace_);
    check_launch("layer_norm_backward");
  }
  void enqueue(const Embed& w, cudaStream_t on) {
    embedding(on, w.rows, w.width, there_.tokens, values(w.weight), values(w.position), w.positions,
              values(w.out));
    check_launch("embedding");
  }
  void enqueue(const EmbedBackward& w, cudaStream_t on) {
    embedding_backward(on, w.width, there_.pieces, values(w.out_gradient), w.add, floats(w.weight_gradient),
                       workspace_);
    check_launch("embedding_backward");
  }
  void enqueue(const Attend& w, cudaStream_t on) {
    attention_.forward(on, shape_of(w), values(w.qkv), values(w.out), floats(w.sums), workspace_);
  }
  void enqueue(const AttendBackward& w, cudaStream_t on) {
    attention_.backward(on, shape_of(w), values(w.qkv), values(w.out), values(w.out_gradient), floats(w.sums),
                        values(w.qkv_gradient), workspace_);
  }
  void enqueue(const Classify& w, cudaStream_t on) {
    float *const loss = of_rows_.data(), *const correct = loss + rows_;
    classify(on, w.rows, there_.real_rows, w.classes, w.stride, there_.targets, program_.label_smoothing,
             w.gradient, values(w.logits), loss, correct);
    statistics(on, w.rows, there_.real_rows, loss, correct, out_);
    check_launch("classify");
  }
  void enqueue(const Elementwise& w, cudaStream_t on) {
    const T *const first = values(w.first), *const second = values(w.second);
    T* const out = values(w.out);
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
          dropout(on, w.count, there_.dropout + step_->node, w.probability, first, w.add, out);
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
    convolutions_.forward(on, w, values(w.in), values(w.weight), floats(w.bias), values(w.out), workspace_);
  }
  void enqueue(const ConvolveInGradient& w, cudaStream_t on) {
    convolutions_.backward_input(on, w, values(w.weight), values(w.out_gradient), values(w.in_gradient),
                                 workspace_);
  }
  void enqueue(const ConvolveWeightGradient& w, cudaStream_t on) {
    convolutions_.backward_parameters(on, w, values(w.in), values(w.out_gradient), floats(w.weight_gradient),
                                      floats(w.bias_gradient), workspace_);
  }
  void enqueue(const Pool& w, cudaStream_t on) {
    max_pool(on, pool_of(w.shape), values(w.in), values(w.out));
    check_launch("max_pool");
  }
  void enqueue(const PoolBackward& w, cudaStream_t on) {
    max_pool_backward(on, pool_of(w.shape), values(w.in), values(w.out_gradient), w.add,
                      values(w.in_gradient));
    check_launch("max_pool_backward");
  }
  void enqueue(const Clear& w, cudaStream_t on) {
    check(cudaMemsetAsync(bytes(w.out), 0, w.bytes, on), "clearing memory");
  }
  void enqueue(const Ready& w, cudaStream_t on) {
    if (recording_)
      told_.at(step_).record_outside(on);
    else
      tell(w);
  }
  static void enqueue(const Join&, cudaStream_t) {}

  const Program program_;
  CudaArithmetic& arithmetic_;
  UseRecord& use_;
  CudaStream stream_;
  const int side_stream_count_ = side_streams_wanted();
  std::vector<std::unique_ptr<CudaStream>> side_streams_;
  CudaStream gradients_;  // waits for what makes a bucket; then the caller's
  Products products_;
  std::unique_ptr<CudnnOps> cudnn_;  // null: not wanted, or not there
  AttentionOps<T> attention_;
  ConvolutionOps<T> convolutions_;
  const int capacity_;
  const Schedule schedule_;
  StepWatch watch_;
  const Buffer arena_;
  MicrobatchUpload upload_;
  const MicrobatchUpload::OnDevice there_;
  const std::size_t rows_;          // with a target each
  const Buffer of_rows_;            // losses, hits
  const Buffer results_;            // of an evaluation
  const Buffer host_results_;       // likewise
  Buffer samples_;                  // as bf16
  std::vector<Buffer> workspaces_;  // of each stream

  const float* parameters_ = nullptr;  // flat; the caller's
  const void* matrices_ = nullptr;     // the same as T

  // The microbatch in hand.
  bool training_ = false;
  float* out_ = nullptr;  // statistics and gradient; the caller's
  const std::function<void(int bucket)>* ready_ = nullptr;
  const Step* step_ = nullptr;
  float* workspace_ = nullptr;

  std::map<const Step*, CudaEvent> done_;  // of steps that are awaited
  std::map<const Step*, CudaEvent> told_;  // of each Ready, when a graph gets there
  std::map<const float*, Graph> graphs_;   // by where results go; none yet of memory that was used once
  bool graphs_wanted_ = graphs_wanted();
  bool recording_ = false;  // what is enqueued
};

}  // namespace

std::unique_ptr<Lane> make_cuda_lane(const Program& program, int capacity, int gpu,
                                     CudaArithmetic& arithmetic, const Algorithms& algorithms,
                                     const std::filesystem::path& plans, UseRecord& use) {
  if (program.bf16)
    return std::make_unique<CudaLane<__nv_bfloat16>>(program, capacity, gpu, arithmetic, algorithms, plans,
                                                     use);
  return std::make_unique<CudaLane<float>>(program, capacity, gpu, arithmetic, algorithms, plans, use);
}

}  // namespace dtrun::worker::cuda
