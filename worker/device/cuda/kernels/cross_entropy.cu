#include <climits>
#include <cmath>

#include "worker/device/cuda/kernels/cross_entropy.h"
#include "worker/device/cuda/kernels/pack.cuh"
#include "worker/vector/update.h"

namespace dtrun::worker::cuda {
namespace {

constexpr int kThreads = 1024;

// A row, or a part of it: its largest logit and the first column that has it, the sum of e^(logit - largest),
// and the sum of the logits.
struct LogitStatistics {
  float largest, sum, total;
  int index;
};

template <typename T>
__device__ LogitStatistics both(const LogitStatistics& a, const LogitStatistics& b) {
  LogitStatistics part;
  part.largest = larger(a.largest, b.largest);
  // A part without a logit above -infinity has nothing to scale, or NaN.
  const float of_a = a.largest == -INFINITY ? a.sum : a.sum * exponential<T>(a.largest - part.largest);
  const float of_b = b.largest == -INFINITY ? b.sum : b.sum * exponential<T>(b.largest - part.largest);
  part.sum = of_a + of_b;
  part.total = a.total + b.total;
  part.index = a.largest > b.largest   ? a.index
               : b.largest > a.largest ? b.index
               : a.index < b.index     ? a.index
                                       : b.index;
  return part;
}

// All lanes get the same bits, since both() commutes.
template <typename T>
__device__ LogitStatistics warp_both(LogitStatistics part) {
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) {
    LogitStatistics other;
    other.largest = __shfl_xor_sync(0xffffffffu, part.largest, lanes);
    other.sum = __shfl_xor_sync(0xffffffffu, part.sum, lanes);
    other.total = __shfl_xor_sync(0xffffffffu, part.total, lanes);
    other.index = __shfl_xor_sync(0xffffffffu, part.index, lanes);
    part = both<T>(part, other);
  }
  return part;
}

// Goes through the thread's packs of the row.
template <int kCount, typename T>
__device__ LogitStatistics part_of(const T* row, int classes) {
  LogitStatistics part{-INFINITY, 0, 0, INT_MAX};
  for (int at = threadIdx.x * kCount; at < classes; at += blockDim.x * kCount) {
    const Pack<T, kCount> pack = load<kCount>(row + at);  // a row is padded to whole packs
    float x[kCount];
    float largest = part.largest;
#pragma unroll
    for (int e = 0; e < kCount; ++e) {
      x[e] = at + e < classes ? to_float(pack.v[e]) : -INFINITY;
      largest = larger(largest, x[e]);
    }
    if (largest > part.largest) {
      part.sum = part.largest == -INFINITY ? part.sum : part.sum * exponential<T>(part.largest - largest);
      part.largest = largest;
      for (int e = kCount - 1; e >= 0; --e)
        if (x[e] == largest) part.index = at + e;
    }
#pragma unroll
    for (int e = 0; e < kCount; ++e) {
      if (at + e >= classes) continue;
      part.total += x[e];
      if (largest == -INFINITY)
        part.sum += x[e] == -INFINITY ? 0.0f : x[e];  // NaN
      else
        part.sum += exponential<T>(x[e] - largest);
    }
  }
  return part;
}

// Of all threads of a block; every thread gets it. `parts`: one a warp.
template <typename T>
__device__ LogitStatistics block_both(const LogitStatistics& own, LogitStatistics* parts) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warps = static_cast<int>(blockDim.x) / kWarp;
  const LogitStatistics part = warp_both<T>(own);
  if (lane == 0) parts[threadIdx.x / kWarp] = part;
  __syncthreads();
  return warp_both<T>(lane < warps ? parts[lane] : LogitStatistics{-INFINITY, 0, 0, INT_MAX});
}

__device__ float block_sum(float value, float* sums) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warps = static_cast<int>(blockDim.x) / kWarp;
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) value += __shfl_xor_sync(0xffffffffu, value, lanes);
  if (lane == 0) sums[threadIdx.x / kWarp] = value;
  __syncthreads();
  value = lane < warps ? sums[lane] : 0.0f;
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) value += __shfl_xor_sync(0xffffffffu, value, lanes);
  return value;
}

__device__ float loss_of(const LogitStatistics& row, int classes, float at_target, float smoothing) {
  float above = (1.0f - smoothing) * (at_target - row.largest);
  if (smoothing != 0) above += smoothing * (row.total / static_cast<float>(classes) - row.largest);
  return logf(row.sum) - above;
}

__device__ float hit_of(const LogitStatistics& row, int target) {
  return (row.index == INT_MAX ? 0 : row.index) == target ? 1.0f : 0.0f;
}

// A block computes one row. It overwrites first the packs that it read last, which are still in the cache.
template <int kCount, typename T>
__global__ void __launch_bounds__(kThreads)
    classify_kernel(const std::uint32_t* real_rows, int classes, int padded, const std::int32_t* targets,
                    float smoothing, bool gradient, T* logits, float* losses, float* corrects) {
  wait_for_previous();
  SHARED_ARRAY(LogitStatistics, parts, kThreads / kWarp);
  const std::size_t row = blockIdx.x;
  T* const x = logits + row * padded;
  const int packs = padded / kCount, threads = blockDim.x;
  if (row >= *real_rows) {
    if (threadIdx.x == 0) losses[row] = corrects[row] = 0;
    Pack<T, kCount> zeros;
    for (int e = 0; e < kCount; ++e) zeros.v[e] = T(0.0f);
    for (int i = threadIdx.x; gradient && i < packs; i += threads) store(x + i * kCount, zeros);
    return;
  }
  const int target = targets[row];
  const float at_target = to_float(x[target]);
  const LogitStatistics part = block_both<T>(part_of<kCount>(x, classes), parts);
  if (threadIdx.x == 0) {
    losses[row] = loss_of(part, classes, at_target, smoothing);
    corrects[row] = hit_of(part, target);
  }
  if (!gradient) return;
  const float factor = 1.0f / part.sum, shared = smoothing / static_cast<float>(classes);
  for (int i = packs - 1 - static_cast<int>(threadIdx.x); i >= 0; i -= threads) {
    Pack<T, kCount> pack = load<kCount>(x + i * kCount);
#pragma unroll
    for (int e = 0; e < kCount; ++e) {
      const int column = i * kCount + e;
      float value = exponential<T>(to_float(pack.v[e]) - part.largest) * factor - shared;
      if (column == target) value -= 1.0f - smoothing;
      pack.v[e] = from_float<T>(column < classes ? value : 0.0f);
    }
    store(x + i * kCount, pack);
  }
}

// A block computes one row, a thread the same columns each time. As planned::Kernels::distill().
template <typename T>
__global__ void __launch_bounds__(kThreads)
    distill_kernel(const std::uint32_t* real_rows, int classes, int padded, const std::int32_t* targets,
                   float smoothing, TeacherLogits<T> teacher, T* logits, float* losses, float* corrects) {
  wait_for_previous();
  constexpr int kWarps = kThreads / kWarp;
  SHARED_ARRAY(LogitStatistics, parts, 2 * kWarps);
  SHARED_ARRAY(float, sums, 3 * kWarps);
  const std::size_t row = blockIdx.x;
  T* const x = logits + row * padded;
  const T* const t = teacher.logits + row * teacher.padded;
  const int begin = threadIdx.x, threads = blockDim.x;
  if (row >= *real_rows) {
    if (begin == 0) losses[row] = corrects[row] = 0;
    for (int i = begin; i < padded; i += threads) x[i] = T(0.0f);
    return;
  }
  const int target = targets[row];
  const float at_target = to_float(x[target]);
  const LogitStatistics own = block_both<T>(part_of<1>(x, classes), parts);
  const LogitStatistics taught = block_both<T>(part_of<1>(t, classes), parts + kWarps);
  const float colder = 1.0f / teacher.temperature;
  float sum = 0, taught_sum = 0, apart = 0;
  for (int i = begin; i < classes; i += threads) {
    const float below = to_float(x[i]) - own.largest, taught_below = to_float(t[i]) - taught.largest;
    const float weight = exponential<T>(taught_below * colder);
    sum += exponential<T>(below * colder), taught_sum += weight;
    apart += weight * (taught_below - below);
  }
  sum = block_sum(sum, sums), taught_sum = block_sum(taught_sum, sums + kWarps);
  apart = block_sum(apart, sums + 2 * kWarps);
  const float rest = 1.0f - teacher.alpha, share = teacher.alpha * teacher.temperature;
  const float each = 1.0f / sum, taught_each = 1.0f / taught_sum;
  if (begin == 0) {
    const float divergence = apart * taught_each * colder + (logf(sum) - logf(taught_sum));
    losses[row] =
        rest * loss_of(own, classes, at_target, smoothing) + share * teacher.temperature * divergence;
    corrects[row] = hit_of(own, target);
  }
  const float factor = 1.0f / own.sum, shared = smoothing / static_cast<float>(classes);
  for (int i = begin; i < padded; i += threads) {
    if (i >= classes) {
      x[i] = T(0.0f);
      continue;
    }
    const float below = to_float(x[i]) - own.largest, taught_below = to_float(t[i]) - taught.largest;
    float value = exponential<T>(below) * factor - shared;
    if (i == target) value -= 1.0f - smoothing;
    const float apart_here =
        exponential<T>(below * colder) * each - exponential<T>(taught_below * colder) * taught_each;
    x[i] = from_float<T>(rest * value + share * apart_here);
  }
}

// Thread t sums rows t, t + threads, …; then the threads' sums are added in pairs.
__global__ void __launch_bounds__(kThreads)
    statistics_kernel(std::size_t rows, const std::uint32_t* real_rows, const float* losses,
                      const float* corrects, float* out) {
  wait_for_previous();
  SHARED_ARRAY(double, loss, kThreads);
  SHARED_ARRAY(double, correct, kThreads);
  const int t = threadIdx.x;
  double own_loss = 0, own_correct = 0;
  for (std::size_t row = t; row < rows; row += blockDim.x)
    own_loss += losses[row], own_correct += corrects[row];
  loss[t] = own_loss, correct[t] = own_correct;
  for (int half = blockDim.x / 2; half > 0; half /= 2) {
    __syncthreads();
    if (t < half) loss[t] += loss[t + half], correct[t] += correct[t + half];
  }
  // Thread 0 has the sums.
  if (t == 0) out[0] = static_cast<float>(loss[0]), out[1] = static_cast<float>(correct[0]);
  if (t >= 2 && t < static_cast<int>(kStatisticsFloats))
    out[t] = t == 2 ? static_cast<float>(*real_rows) : 0.0f;
}

unsigned threads_of(std::size_t padded) { return padded >= 8192 ? kThreads : padded >= 1024 ? 256 : kWarp; }

}  // namespace

template <typename T>
void classify(cudaStream_t stream, std::size_t rows, const std::uint32_t* real_rows, std::size_t classes,
              std::size_t padded, const std::int32_t* targets, float smoothing, bool gradient, T* logits,
              float* loss, float* correct) {
  if (rows == 0) return;
  const bool packs = padded % kWide<T> == 0 && wide({logits});
  launch(packs ? classify_kernel<kWide<T>, T> : classify_kernel<1, T>, static_cast<unsigned>(rows),
         threads_of(padded), 0, stream, real_rows, static_cast<int>(classes), static_cast<int>(padded),
         targets, smoothing, gradient, logits, loss, correct);
}

template <typename T>
void distill(cudaStream_t stream, std::size_t rows, const std::uint32_t* real_rows, std::size_t classes,
             std::size_t padded, const std::int32_t* targets, float smoothing,
             const TeacherLogits<T>& teacher, T* logits, float* loss, float* correct) {
  if (rows == 0) return;
  launch(distill_kernel<T>, static_cast<unsigned>(rows), threads_of(padded), 0, stream, real_rows,
         static_cast<int>(classes), static_cast<int>(padded), targets, smoothing, teacher, logits, loss,
         correct);
}

void statistics(cudaStream_t stream, std::size_t rows, const std::uint32_t* real_rows, const float* loss,
                const float* correct, float* out) {
  const unsigned threads = rows >= 4096 ? kThreads : rows >= 256 ? 128 : kWarp;
  launch(statistics_kernel, 1, threads, 0, stream, rows, real_rows, loss, correct, out);
}

#define DTRUN_CLASSIFIER(T)                                                                         \
  template void classify(cudaStream_t, std::size_t, const std::uint32_t*, std::size_t, std::size_t, \
                         const std::int32_t*, float, bool, T*, float*, float*);                     \
  template void distill(cudaStream_t, std::size_t, const std::uint32_t*, std::size_t, std::size_t,  \
                        const std::int32_t*, float, const TeacherLogits<T>&, T*, float*, float*);
DTRUN_CLASSIFIER(float)
DTRUN_CLASSIFIER(__nv_bfloat16)

}  // namespace dtrun::worker::cuda
