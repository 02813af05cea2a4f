#include "worker/device/cuda/lane/attention.h"

#include <algorithm>
#include <optional>

#include "worker/base/error.h"
#include "worker/device/cuda/failure.h"
#include "worker/device/cuda/kernels/trial.h"

namespace dtrun::worker::cuda {

template <typename T>
std::string AttentionOps<T>::use(CudnnOps& cudnn, const AttentionShape& shape, Trial& trial) {
  if (sizeof(T) != 2) return "cuDNN has no attention in fp32";
  const Status planned = cudnn.plan(shape);
  if (!planned.ok()) return planned.message();
  cudnn_ = &cudnn;
  std::string fault = try_out(shape, trial);
  if (fault.empty()) cudnns_.insert(shape);
  return fault;
}

// Scores differ by about 5 in each row, so that probabilities are neither even nor one, and the error of a
// wrong row is as large as its numbers. cuDNN rounds probabilities and their gradients to bf16 (1/256), the
// own kernels do not.
template <typename T>
std::string AttentionOps<T>::try_out(const AttentionShape& shape, Trial& trial) const {
  constexpr float kLargest = 4, kTolerance = 1.0f / 32;
  const std::size_t sums = attention_statistics(shape),
                    rows = static_cast<std::size_t>(shape.samples) * shape.tokens * shape.width();
  constexpr std::size_t kVectors = 11;
  std::optional<Cut> memory = trial.memory(12 * rows * sizeof(T) + 3 * sums * sizeof(float) +
                                           cudnn_->workspace(shape) + kVectors * Cut::kAlignment);
  if (!memory) return "the GPU has no room to try it out";
  auto* const qkv = memory->template next<T>(3 * rows);
  auto* const d_out = memory->template next<T>(rows);
  T* const out[] = {memory->template next<T>(rows), memory->template next<T>(rows)};
  T* const d_qkv[] = {memory->template next<T>(3 * rows), memory->template next<T>(3 * rows)};
  float* const statistics[] = {memory->template next<float>(sums), memory->template next<float>(sums)};
  auto* const apart = memory->template next<float>(2);
  auto* const workspace =
      memory->template next<float>(std::max(sums, cudnn_->workspace(shape) / sizeof(float) + 1));

  auto* const on = trial.stream().handle();
  scatter(on, 3 * rows, 1, kLargest, qkv);
  scatter(on, rows, 2, 1, d_out);
  check_launch("scatter");
  attention(on, shape, qkv, out[0], statistics[0]);
  attention_backward(on, shape, qkv, out[0], d_out, statistics[0], d_qkv[0], workspace);
  check_launch("attention");
  // Memory that is not written must not look right.
  check(cudaMemsetAsync(out[1], 0xff, rows * sizeof(T), on), "clearing memory");
  check(cudaMemsetAsync(d_qkv[1], 0xff, 3 * rows * sizeof(T), on), "clearing memory");
  check(cudaMemsetAsync(statistics[1], 0xff, sums * sizeof(float), on), "clearing memory");
  std::string fault;
  try {
    cudnn_->attention(on, shape, qkv, out[1], statistics[1], workspace);
    cudnn_->attention_backward(on, shape, qkv, out[1], d_out, statistics[1], d_qkv[1], workspace);
    fault = trial.difference("output", rows, out[0], out[1], kTolerance, apart);
    if (fault.empty())
      fault = trial.difference("statistics", sums, statistics[0], statistics[1], kTolerance, apart);
    if (fault.empty()) fault = trial.difference("gradient", 3 * rows, d_qkv[0], d_qkv[1], kTolerance, apart);
  } catch (const WorkerError& error) {
    return error.what();
  }
  return fault.empty() ? "" : "cuDNN's attention is not that of the own kernels (" + fault + ")";
}

template <typename T>
std::size_t AttentionOps<T>::workspace(const AttentionForward& work) const {
  const AttentionShape shape = shape_of(work);
  return is_cudnns(shape) ? cudnn_->workspace(shape) : 0;
}

template <typename T>
std::size_t AttentionOps<T>::workspace(const AttentionBackward& work) const {
  const AttentionShape shape = shape_of(work);
  return is_cudnns(shape) ? cudnn_->workspace(shape) : attention_statistics(shape) * sizeof(float);
}

template <typename T>
void AttentionOps<T>::forward(cudaStream_t on, const AttentionShape& shape, const T* qkv, T* out,
                              float* statistics, float* workspace) const {
  if (is_cudnns(shape)) return cudnn_->attention(on, shape, qkv, out, statistics, workspace);
  attention(on, shape, qkv, out, statistics);
  check_launch("attention");
}

template <typename T>
void AttentionOps<T>::backward(cudaStream_t on, const AttentionShape& shape, const T* qkv, const T* out,
                               const T* out_gradient, const float* statistics, T* qkv_gradient,
                               float* workspace) const {
  if (is_cudnns(shape))
    return cudnn_->attention_backward(on, shape, qkv, out, out_gradient, statistics, qkv_gradient, workspace);
  attention_backward(on, shape, qkv, out, out_gradient, statistics, qkv_gradient, workspace);
  check_launch("attention_backward");
}

template class AttentionOps<float>;
template class AttentionOps<__nv_bfloat16>;

}  // namespace dtrun::worker::cuda
