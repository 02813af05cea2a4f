// A lane on a GPU: carries out a schedule on the GPU's streams. Enqueues all work and waits only for an
// evaluation's result and, in lock step, for a norm's sums.
#include "worker/device/cuda/lane/lane.h"

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "worker/base/error.h"
#include "worker/device/cuda/failure.h"
#include "worker/device/cuda/kernels/elementwise.h"
#include "worker/device/cuda/kernels/launches.h"
#include "worker/device/cuda/kernels/quantize.h"
#include "worker/device/cuda/lane/checked_schedule.h"
#include "worker/device/cuda/lane/graphs.h"
#include "worker/device/cuda/lane/group_norm.h"
#include "worker/device/cuda/lane/launcher.h"
#include "worker/device/cuda/lane/microbatch_upload.h"
#include "worker/device/cuda/lane/teacher_forward.h"
#include "worker/device/cuda/steps.h"
#include "worker/device/cuda/timing/nvtx.h"
#include "worker/device/cuda/timing/step_watch.h"
#include "worker/quantize/matrices.h"

namespace dtrun::worker::cuda {
namespace {

template <typename T>
class CudaLane final : public Lane {
 public:
  CudaLane(const Program& program, int capacity, int gpu, CudaArithmetic& arithmetic,
           const std::filesystem::path& plans, const CudaLaunches& launches, UseRecord& use)
      : program_(program),
        arithmetic_(arithmetic),
        stream_(gpu),
        side_stream_count_(launches.side_streams),
        gradients_(gpu),
        launcher_(arithmetic, static_cast<std::size_t>(capacity) * program_.sample.targets,
                  program_.label_smoothing, use),
        capacity_(capacity),
        schedule_(make_checked_schedule(program_, capacity, plan_for_gpu(program_.bf16), side_stream_count_,
                                        launcher_.matmuls(), arithmetic, stream_, use)),
        watch_(program_, arithmetic.timer()),
        arena_(make_arena(program_, capacity, schedule_.arena, arithmetic)),
        upload_(program_, capacity, gpu, arithmetic, stream_),
        results_(arithmetic.allocate(Where::kDevice, kStatisticsFloats)),
        host_results_(arithmetic.allocate(Where::kHost, kStatisticsFloats)),
        graphs_(stream_, launches.graphs, use) {
    for (int i = 0; i < side_stream_count_; ++i) side_streams_.push_back(std::make_unique<CudaStream>(gpu));
    name_streams();
    Trial trial(arithmetic_, stream_, arena_.data(), schedule_.arena);
    launcher_.choose_cudnn(schedule_, gpu, plans, trial);
    use.set("side_streams", std::to_string(side_stream_count_));
    use.set("programmatic_launches", programmatic_launches() ? "used" : why_not_programmatic());
    launcher_.make_workspaces(schedule_, 1 + side_streams_.size());
    if (kRounds && program_.sample.input == SampleSpec::Input::kValues)
      samples_ =
          arithmetic.allocate_bytes(capacity * program_.sample.shape.size() * sizeof(T), "a microbatch");
    LaneMemory<T>& memory = launcher_.memory();
    memory.arena = arena_.data();
    memory.microbatch = upload_.there();
    memory.samples = kRounds ? samples_.data() : memory.microbatch.values;
    if (program_.teacher != nullptr && program_.teacher->alpha != 0) {
      teacher_ = std::make_unique<TeacherForward<T>>(*program_.teacher, capacity, gpu, arithmetic, stream_,
                                                     plans, memory.microbatch, memory.samples);
      launcher_.learn_from(teacher_->logits());
    }
    schedule_.each_step([this](const Step& step) {
      if (step.awaited) done_.try_emplace(&step);
      if (std::holds_alternative<Ready>(step.work)) told_.try_emplace(&step);
    });
  }
  // Waits for enqueued work, since its memory is freed next.
  ~CudaLane() override {
    try {
      stream_.wait();
      for (const auto& stream : side_streams_) stream->wait();
      gradients_.wait();
    } catch (const WorkerError&) {
      // The GPU failed and does no more work.
    }
  }

  Stream& stream() override { return stream_; }
  Stream& gradients() override { return gradients_; }

  void parameters_changed(const float* weights) override {
    const void* matrices = weights;
    if (program_.quantize_aware)
      matrices = quantized(weights, *program_.quantize_aware);
    else if constexpr (kRounds)
      matrices = arithmetic_.rounded(weights, program_.size, stream_);
    LaneMemory<T>& memory = launcher_.memory();
    if (memory.parameters == weights && memory.matrices == matrices) return;
    stream_.wait();
    graphs_.parameters_changed({weights, matrices});
    memory.parameters = weights, memory.matrices = matrices;
  }

  void prepare(const Microbatch& microbatch) override { upload_.prepare(microbatch); }
  bool is_prepared(const MicrobatchKey& key) const override { return upload_.is_prepared(key); }

  void train(const Microbatch& microbatch, float* out,
             const std::function<void(int bucket)>& ready) override {
    ready_ = &ready;
    run(microbatch, true, out);
  }

  // Step by step: no graph waits for other microbatches.
  void begin(const Microbatch& microbatch, float* out) override {
    if (!norm_) norm_.emplace(arithmetic_, launcher_.memory(), schedule_);
    load(microbatch, true, out);
    round_samples();
    samples_in_step_ = microbatch.samples, next_step_ = 0, summed_ = false;
  }
  std::span<double> go_on(const std::function<void(int bucket)>& ready) override {
    ready_ = &ready;
    const std::size_t forward = schedule_.forward.size(), all = forward + schedule_.backward.size();
    for (; next_step_ < all; ++next_step_, summed_ = false) {
      const bool backward = next_step_ >= forward;
      const std::vector<Step>& steps = backward ? schedule_.backward : schedule_.forward;
      const Step& step = steps[next_step_ - (backward ? forward : 0)];
      if (next_step_ == forward && teacher_ && !summed_) teacher_->enqueue(stream_);
      if (is_batch_norm(step.work) && !summed_) {
        summed_ = true;
        CudaStream& on = wait_for_others(step, steps);
        const StepWatch::Scope watched(watch_, step, on);
        return norm_->sums_of(step.work, samples_in_step_, on);
      }
      enqueue(step, steps);
    }
    return {};
  }

  MicrobatchStats evaluate(const Microbatch& microbatch) override {
    run(microbatch, false, results_.data());
    arithmetic_.copy(stream_, host_results_.data(), results_.data(), kStatisticsFloats);
    stream_.wait();
    return {.loss = host_results_.data()[0], .correct = host_results_.data()[1]};
  }

 private:
  static constexpr bool kRounds = sizeof(T) == 2;  // whether samples and weights are rounded to bf16

  void name_streams() {
    stream_.set_name("lane");
    gradients_.set_name("buckets");
    for (int i = 0; i < side_stream_count_; ++i) side_streams_[i]->set_name("side " + std::to_string(i + 1));
  }

  // A copy of the parameters as T, whose matrices are rounded as an export stores them.
  const void* quantized(const float* weights, Quantization how) {
    const std::size_t size = program_.size;
    if (!quantized_) quantized_ = arithmetic_.allocate_bytes(size * sizeof(T), "the rounded parameters");
    T* const copy = reinterpret_cast<T*>(quantized_.data());
    const EventTimer::Scope timed(arithmetic_.timer(), stream_, [&] {
      return vector_op("rounding weights", 3 * size * sizeof(float), 2 * size * sizeof(T));
    });
    if constexpr (kRounds)
      to_bf16(stream_.handle(), size, weights, copy);
    else
      check(cudaMemcpyAsync(copy, weights, size * sizeof(T), cudaMemcpyDefault, stream_.handle()), "copying");
    for (const QuantizedMatrix& matrix : quantized_matrices(program_)) {
      const std::size_t offset = program_.parameters[matrix.parameter].offset;
      round_matrix(stream_.handle(),
                   {.rows = matrix.rows,
                    .columns = matrix.columns,
                    .in_first = matrix.in_first,
                    .four_bits = how == Quantization::kQ4_0},
                   weights + offset, copy + offset);
    }
    check_launch("round_matrix");
    return copy;
  }

  void load(const Microbatch& microbatch, bool training, float* out) {
    upload_.upload(microbatch);
    launcher_.memory().out = out;
    launcher_.set_training(training);
  }

  void run(const Microbatch& microbatch, bool training, float* out) {
    const nvtx::Range range("microbatch");
    load(microbatch, training, out);
    const auto record = [&] {
      recording_ = true;
      enqueue_all(training);
      recording_ = false;
    };
    // A timer times each operation by itself.
    if (arithmetic_.timer().on() || !graphs_.launch(out, record)) return enqueue_all(training);
    for (const Step& step : rest(training)) {
      const auto* const ready = std::get_if<Ready>(&step.work);
      if (ready == nullptr) continue;
      told_.at(&step).make_wait(gradients_.handle());
      tell(*ready);
    }
  }

  // The steps that follow forward.
  const std::vector<Step>& rest(bool training) const {
    return training ? schedule_.backward : schedule_.evaluate;
  }

  void enqueue_all(bool training) {
    round_samples();
    {
      const nvtx::Range range("forward");
      enqueue_steps(schedule_.forward);
    }
    if (training && teacher_) {
      const nvtx::Range range("teacher");
      teacher_->enqueue(stream_);
    }
    const nvtx::Range range(training ? "backward" : "loss");
    enqueue_steps(rest(training));
  }

  void round_samples() {
    if constexpr (kRounds) {
      if (!samples_) return;
      const std::size_t count = capacity_ * program_.sample.shape.size();
      const EventTimer::Scope timed(arithmetic_.timer(), stream_, [&] {
        return vector_op("samples in bf16", count * sizeof(float), count * sizeof(T));
      });
      to_bf16(stream_.handle(), count, launcher_.memory().microbatch.values,
              reinterpret_cast<T*>(samples_.data()));
      check_launch("to_bf16");
    }
  }

  CudaStream& stream_of(const Step& step) {
    if (step.stream == 0) return stream_;
    return step.stream <= side_stream_count_ ? *side_streams_[step.stream - 1] : gradients_;
  }

  void enqueue_steps(const std::vector<Step>& steps) {
    for (const Step& step : steps) enqueue(step, steps);
  }
  void enqueue(const Step& step, const std::vector<Step>& steps) {
    CudaStream& on = wait_for_others(step, steps);
    {
      const StepWatch::Scope watched(watch_, step, on);
      if (const auto* const ready = std::get_if<Ready>(&step.work))
        reach(step, *ready);
      else if (summed_)
        norm_->finish(step.work, on);
      else
        launcher_.launch(step, on.handle());
    }
    if (step.awaited) done_.at(&step).record(on.handle());
  }
  // Of the same list of steps. Returns the step's stream.
  CudaStream& wait_for_others(const Step& step, const std::vector<Step>& steps) {
    CudaStream& on = stream_of(step);
    for (const int before : step.after) done_.at(&steps[before]).make_wait(on.handle());
    return on;
  }

  void reach(const Step& step, const Ready& ready) {
    if (recording_)
      told_.at(&step).record_outside(gradients_.handle());
    else
      tell(ready);
  }

  void tell(const Ready& ready) {
    for (int bucket = ready.first_bucket; bucket < ready.end_bucket; ++bucket) (*ready_)(bucket);
  }

  const Program program_;
  CudaArithmetic& arithmetic_;
  CudaStream stream_;
  const int side_stream_count_;
  std::vector<std::unique_ptr<CudaStream>> side_streams_;
  CudaStream gradients_;  // waits for the work that makes a bucket, then takes the caller's
  StepLauncher<T> launcher_;
  const int capacity_;
  const Schedule schedule_;
  StepWatch watch_;
  const Buffer arena_;
  MicrobatchUpload upload_;
  const Buffer results_;       // an evaluation's
  const Buffer host_results_;  // an evaluation's
  Buffer samples_;             // in bf16
  std::unique_ptr<TeacherForward<T>> teacher_;
  Buffer quantized_;  // the parameters as T, with train.quantize_aware

  const std::function<void(int bucket)>* ready_ = nullptr;  // that of the current microbatch

  std::map<const Step*, CudaEvent> done_;  // for steps that others wait for
  std::map<const Step*, CudaEvent> told_;  // for each Ready, recorded by a graph
  MicrobatchGraphs graphs_;
  bool recording_ = false;  // into a graph
  // In lock step: the step that go_on() goes on with, and whether it is a norm whose sums were handed in.
  std::optional<GroupNorm<T>> norm_;
  std::size_t samples_in_step_ = 0, next_step_ = 0;
  bool summed_ = false;
};

}  // namespace

std::unique_ptr<Lane> make_cuda_lane(const Program& program, int capacity, int gpu,
                                     CudaArithmetic& arithmetic, const std::filesystem::path& plans,
                                     const CudaLaunches& launches, UseRecord& use) {
  if (program.bf16)
    return std::make_unique<CudaLane<__nv_bfloat16>>(program, capacity, gpu, arithmetic, plans, launches,
                                                     use);
  return std::make_unique<CudaLane<float>>(program, capacity, gpu, arithmetic, plans, launches, use);
}

}  // namespace dtrun::worker::cuda
