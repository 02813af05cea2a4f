#include <algorithm>

#include "worker/device/cuda/kernels/pack.cuh"
#include "worker/device/cuda/kernels/trial.h"

namespace dtrun::worker::cuda {
namespace {

constexpr int kThreads = 256;

// A hash that makes neighbouring inputs unlike ("lowbias32" of C. Wellons).
__device__ inline unsigned mixed(unsigned x) {
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = (x ^ (x >> 15)) * 0x846ca68bu;
  return x ^ (x >> 16);
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    scatter_kernel(std::size_t count, unsigned seed, float largest, T* out) {
  wait_for_previous();
  const std::size_t at = static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= count) return;
  const unsigned bits = mixed(static_cast<unsigned>(at) ^ mixed(seed + static_cast<unsigned>(at >> 32)));
  out[at] = from_float<T>(largest * (static_cast<float>(bits >> 8) * 0x1p-23f - 1));
}

// Non-negative floats compare as their bits do.
__device__ inline void raise(float* to, float value) {
  atomicMax(reinterpret_cast<unsigned*>(to), __float_as_uint(value));
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    compare_kernel(std::size_t count, const T* left, const T* right, float* apart) {
  wait_for_previous();
  float most = 0, largest = 0;
  for (std::size_t at = static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x; at < count;
       at += static_cast<std::size_t>(gridDim.x) * kThreads) {
    const float a = to_float(left[at]), difference = fabsf(a - to_float(right[at]));
    most = difference == difference ? larger(most, difference) : __uint_as_float(0x7f800000u);
    largest = larger(largest, fabsf(a));
  }
  raise(apart, most);
  raise(apart + 1, largest);
}

}  // namespace

int architecture_of_kernels() {
  cudaFuncAttributes kernel{};
  return cudaFuncGetAttributes(&kernel, compare_kernel<float>) == cudaSuccess ? kernel.ptxVersion : 0;
}

template <typename T>
void scatter(cudaStream_t stream, std::size_t count, unsigned seed, float largest, T* out) {
  if (count == 0) return;
  launch(scatter_kernel<T>, blocks_of(count, kThreads), kThreads, 0, stream, count, seed, largest, out);
}

template <typename T>
void compare(cudaStream_t stream, std::size_t count, const T* left, const T* right, float* apart) {
  if (count == 0) return;
  launch(compare_kernel<T>, std::min(blocks_of(count, kThreads), 1024u), kThreads, 0, stream, count, left,
         right, apart);
}

#define DTRUN_TRIAL(T)                                                   \
  template void scatter(cudaStream_t, std::size_t, unsigned, float, T*); \
  template void compare(cudaStream_t, std::size_t, const T*, const T*, float*);
DTRUN_TRIAL(float)
DTRUN_TRIAL(__nv_bfloat16)

}  // namespace dtrun::worker::cuda
