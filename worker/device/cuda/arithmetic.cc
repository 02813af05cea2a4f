#include "worker/device/cuda/arithmetic.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "proto/base/log.h"
#include "proto/core/exit_codes.h"
#include "proto/core/overloaded.h"
#include "worker/base/error.h"
#include "worker/device/cuda/failure.h"
#include "worker/device/cuda/kernels/elementwise.h"
#include "worker/device/cuda/kernels/vector.h"

namespace dtrun::worker::cuda {
namespace {

constexpr std::size_t kTargets = 2;                                // the number of targets' place among the
                                                                   // statistics
constexpr std::size_t kNormWork = 2 * (kSquareNormWorkspace + 1);  // floats: doubles, and the result

CudaStream& of(Stream& stream) { return dynamic_cast<CudaStream&>(stream); }

// This part of the GPU's memory stays free when spare memory is given away, since libraries load kernels
// late.
constexpr std::size_t kKeptFree = 20;

// Names of operations for people.
constexpr const char* kAddingUp = "adding microbatches up";
constexpr const char* kCopying = "copying";

// The optimizer reads the gradient, and reads and writes the parameters and its own vectors.
TimedOp optimizer_op(const UpdateRule& rule, const UpdatedVectors& vectors, bool with_copy) {
  const bool adamw = std::holds_alternative<AdamWRule>(rule.optimizer);
  const std::size_t bytes = vectors.size * sizeof(float), kept = 1 + vectors.slots.size();
  return vector_op(adamw ? "AdamW" : "SGD", (1 + kept) * bytes,
                   kept * bytes + (with_copy ? vectors.size * sizeof(__nv_bfloat16) : 0));
}

}  // namespace

Buffer CudaArithmetic::allocate_bytes(std::size_t bytes, const std::string& what) {
  Buffer buffer = try_allocate_bytes(bytes);
  if (!buffer) out_of_memory(what, bytes);
  return buffer;
}

Buffer CudaArithmetic::try_allocate_bytes(std::size_t bytes) {
  use_gpu(gpu_);
  void* memory = nullptr;
  // A vector without elements needs an address as well.
  const std::size_t size = std::max<std::size_t>(bytes, 1);
  const cudaError_t result = cudaMalloc(&memory, size);
  if (result == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // clears the error, which later calls must not report
    return {};
  }
  check(result, "reserving memory");
  Buffer buffer(static_cast<float*>(memory), (bytes + sizeof(float) - 1) / sizeof(float),
                [this, bytes](float* freed) {
                  use_gpu(gpu_);
                  cudaFree(freed);
                  used_ -= bytes;
                });
  const std::size_t now = used_ += bytes;
  std::size_t most = peak_;
  while (most < now && !peak_.compare_exchange_weak(most, now)) {
  }
  return buffer;
}

Buffer CudaArithmetic::allocate(Where where, std::size_t floats) {
  if (where == Where::kDevice) {
    Buffer buffer =
        allocate_bytes(floats * sizeof(float), "a vector of " + std::to_string(floats) +
                                                   " numbers (parameters, gradients and the optimizer's)");
    check(cudaMemset(buffer.data(), 0, floats * sizeof(float)), "clearing memory");
    // The lanes' streams do not wait for the default stream, on which the memset runs.
    check(cudaStreamSynchronize(nullptr), "clearing memory");
    return buffer;
  }
  use_gpu(gpu_);
  void* memory = nullptr;
  const std::size_t size = std::max<std::size_t>(floats * sizeof(float), 1);
  check(cudaHostAlloc(&memory, size, cudaHostAllocDefault), "reserving memory of the host");
  std::memset(memory, 0, size);
  return {static_cast<float*>(memory), floats, [](float* freed) { cudaFreeHost(freed); }};
}

Buffer CudaArithmetic::spare(std::size_t floats) {
  use_gpu(gpu_);
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "asking for its memory");
  const std::size_t bytes = floats * sizeof(float);
  return bytes + total / kKeptFree <= free ? try_allocate_bytes(bytes) : Buffer();
}

Buffer CudaArithmetic::pin(std::span<float> memory) {
  use_gpu(gpu_);
  const cudaError_t result = cudaHostRegister(memory.data(), memory.size_bytes(), cudaHostRegisterDefault);
  if (result != cudaSuccess) {
    cudaGetLastError();  // clears the error, which later calls must not report
    log_debug(std::string("memory of the host is not pinned: ") + cudaGetErrorString(result));
    return {};
  }
  return {memory.data(), memory.size(), [gpu = gpu_](float* pinned) {
            use_gpu(gpu);
            cudaHostUnregister(pinned);
          }};
}

void CudaArithmetic::copy(Stream& stream, float* to, const float* from, std::size_t floats) {
  if (floats == 0) return;
  written(to, floats);
  const std::size_t bytes = floats * sizeof(float);
  const CudaStream& on = of(stream);
  const EventTimer::Scope timed(timer_, on, [&] { return vector_op(kCopying, bytes, bytes); });
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, on.handle()), "copying");
}

void CudaArithmetic::accumulate(Stream& stream, float* left, const float* right, std::size_t floats) {
  written(left, floats);
  const std::size_t bytes = floats * sizeof(float);
  const CudaStream& on = of(stream);
  const EventTimer::Scope timed(timer_, on, [&] { return vector_op(kAddingUp, 2 * bytes, bytes); });
  cuda::accumulate(on.handle(), left, right, floats);
  check_launch("accumulate");
}

void CudaArithmetic::sum(Stream& stream, const TreeSum& sum, std::span<const float* const> inputs, float* out,
                         std::size_t floats) {
  if (sum.inputs > kTreeInputs || sum.temporaries >= kTreeDepth)
    throw WorkerError(kExitConfig, "a sum has " + std::to_string(sum.inputs) + " parts, and a GPU adds up " +
                                       std::to_string(kTreeInputs) +
                                       " at once: start as many workers on each host, or fewer in all");
  written(out, floats);
  const std::size_t bytes = floats * sizeof(float);
  const CudaStream& on = of(stream);
  const EventTimer::Scope timed(timer_, on, [&] {
    return vector_op(inputs.size() == 1 ? kCopying : kAddingUp, inputs.size() * bytes, bytes);
  });
  tree_sum(on.handle(), sum, inputs, out, floats);
  check_launch("tree_sum");
}

StepResult CudaArithmetic::update(Stream& stream, const UpdateRule& rule, float* sum,
                                  const UpdatedVectors& vectors, const Parallel&) {
  std::lock_guard one_at_a_time(update_mutex_);
  CudaStream& on = of(stream);
  float* const gradient = sum + kStatisticsFloats + vectors.running;  // behind the running statistics
  const std::size_t size = vectors.size - vectors.running;
  StepResult result = measure(on, rule, sum, gradient, size);
  const auto targets = static_cast<float>(result.stats.targets);
  if (rule.finite_only && !(std::isfinite(result.stats.loss) && std::isfinite(result.norm))) {
    result.applied = false;
    divide(on, gradient, targets, size);
    return result;
  }
  GradientScale scale{.count = targets, .clip = 1};
  // torch.nn.utils.clip_grad_norm_
  if (rule.max_norm > 0) scale.clip = static_cast<float>(std::min(1.0, rule.max_norm / (result.norm + 1e-6)));
  optimize(on, rule, scale, gradient, vectors);
  return result;
}

// The statistics of a step's sum, and its gradient's norm if the rule needs it. Blocks.
StepResult CudaArithmetic::measure(CudaStream& on, const UpdateRule& rule, const float* sum,
                                   const float* gradient, std::size_t size) {
  if (!results_) {
    results_ = allocate(Where::kHost, kStatisticsFloats + sizeof(double) / sizeof(float));
    work_ = allocate(Where::kDevice, kNormWork);
  }
  const auto read = [&](float* to, const void* from, std::size_t bytes) {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, on.handle()), "copying");
  };
  float* const squares_there = results_.data() + kStatisticsFloats;
  const bool with_norm = rule.max_norm > 0 || rule.norm_wanted || rule.finite_only;
  read(results_.data(), sum, kStatisticsFloats * sizeof(float));
  if (with_norm) {
    auto* const work = reinterpret_cast<double*>(work_.data());
    double* const norm = work + kSquareNormWorkspace;
    const EventTimer::Scope timed(timer_, on, [&] { return vector_op("norm", size * sizeof(float), 0); });
    square_norm(on.handle(), gradient, size, sum + kTargets, work, norm);
    check_launch("square_norm");
    read(squares_there, norm, sizeof(double));
  }
  on.wait();
  const float* const statistics = results_.data();
  StepResult result{
      .stats = {.loss = statistics[0], .correct = statistics[1], .targets = statistics[kTargets]}};
  if (with_norm) {
    double squares = 0;
    std::memcpy(&squares, squares_there, sizeof squares);
    result.norm = std::sqrt(squares);
  }
  return result;
}

// Makes the gradient's sum its mean, for the search for what is not finite. Blocks.
void CudaArithmetic::divide(CudaStream& on, float* gradient, float targets, std::size_t size) {
  const std::size_t bytes = size * sizeof(float);
  const EventTimer::Scope timed(timer_, on, [&] { return vector_op("mean", bytes, bytes); });
  mean(on.handle(), gradient, size, targets);
  check_launch("mean");
  on.wait();
}

void CudaArithmetic::optimize(CudaStream& on, const UpdateRule& rule, const GradientScale& scale,
                              const float* gradient, const UpdatedVectors& vectors) {
  __nv_bfloat16* copy = nullptr;
  {
    std::lock_guard lock(mutex_);
    if (rounded_.of == vectors.parameters) copy = reinterpret_cast<__nv_bfloat16*>(rounded_.copy.data());
  }
  const std::size_t begin = vectors.running, size = vectors.size - begin;
  float* const parameters = vectors.parameters + begin;
  if (copy != nullptr) copy += begin;
  const auto slot = [&](std::size_t i) { return vectors.slots[i] + begin; };
  const std::size_t ranges = decaying(on, rule, vectors);
  const auto* const boundaries = reinterpret_cast<const std::uint64_t*>(boundaries_.data());
  std::optional<EventTimer::Scope> timed;
  timed.emplace(timer_, on, [&] { return optimizer_op(rule, vectors, copy != nullptr); });
  std::visit(Overloaded{[&](const SgdRule& sgd_rule) {
                          if (vectors.slots.empty())
                            sgd(on.handle(), sgd_rule, scale, boundaries, ranges, gradient, parameters, copy,
                                size);
                          else
                            sgd_momentum(on.handle(), sgd_rule, scale, boundaries, ranges, gradient,
                                         parameters, slot(0), copy, size);
                        },
                        [&](const AdamWRule& adamw_rule) {
                          adamw(on.handle(), adamw_rule, scale, boundaries, ranges, gradient, parameters,
                                slot(0), slot(1), copy, size);
                        }},
             rule.optimizer);
  check_launch("the optimizer");
  timed.reset();
  for (const RunningStatistics& statistics : vectors.statistics)
    running_statistics(on.handle(), statistics, scale.count, gradient - begin, vectors.parameters);
  check_launch("running_statistics");
  on.wait();
  if (copy != nullptr) {
    std::lock_guard lock(mutex_);
    rounded_.true_copy = true;
    rounded_.made = {};
  }
}

// Copies the ranges to boundaries_ if the rule needs them; returns the number of ranges. The ranges of a run
// never change.
std::size_t CudaArithmetic::decaying(CudaStream& stream, const UpdateRule& rule,
                                     const UpdatedVectors& vectors) {
  const std::span<const VectorRange> ranges = vectors.decaying;
  const bool looked_at = std::visit(Overloaded{[](const SgdRule& sgd) { return !sgd.decays_all; },
                                               [](const AdamWRule& adamw) { return adamw.keep != 1; }},
                                    rule.optimizer);
  if (!looked_at) return 0;
  const auto same = [](const VectorRange& a, const VectorRange& b) {
    return a.begin == b.begin && a.end == b.end;
  };
  if (!boundaries_ || !std::ranges::equal(decaying_, ranges, same)) {
    std::vector<std::uint64_t> boundaries;
    for (const VectorRange& range : ranges) {
      boundaries.push_back(range.begin - vectors.running);
      boundaries.push_back(range.end - vectors.running);
    }
    const std::size_t bytes = boundaries.size() * sizeof(std::uint64_t);
    boundaries_ = allocate_bytes(bytes, "the ranges that decay");
    check(cudaMemcpyAsync(boundaries_.data(), boundaries.data(), bytes, cudaMemcpyHostToDevice,
                          stream.handle()),
          "copying");
    stream.wait();
    decaying_.assign(ranges.begin(), ranges.end());
  }
  return ranges.size();
}

void CudaArithmetic::written(const float* to, std::size_t floats) {
  std::lock_guard lock(mutex_);
  if (to < rounded_.of + rounded_.size && rounded_.of < to + floats) rounded_.true_copy = false;
}

const __nv_bfloat16* CudaArithmetic::rounded(const float* parameters, std::size_t size, Stream& stream) {
  std::lock_guard lock(mutex_);
  if (rounded_.size != size)
    rounded_ = {.of = parameters,
                .size = size,
                .copy = allocate_bytes(size * sizeof(__nv_bfloat16), "the parameters in bf16"),
                .true_copy = false,
                .made = {}};
  if (rounded_.of != parameters) rounded_.of = parameters, rounded_.true_copy = false;
  auto* const copy = reinterpret_cast<__nv_bfloat16*>(rounded_.copy.data());
  if (!rounded_.true_copy) {
    const EventTimer::Scope timed(timer_, of(stream), [&] {
      return vector_op("parameters in bf16", size * sizeof(float), size * sizeof(__nv_bfloat16));
    });
    to_bf16(of(stream).handle(), size, parameters, copy);
    check_launch("to_bf16");
    rounded_.true_copy = true;
    rounded_.made = stream.record();
  }
  stream.after(rounded_.made);
  return copy;
}

}  // namespace dtrun::worker::cuda
