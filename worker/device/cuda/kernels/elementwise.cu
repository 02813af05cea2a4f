#include <cmath>
#include <type_traits>

#include "worker/device/cuda/kernels/elementwise.h"
#include "worker/device/cuda/kernels/pack.cuh"

namespace dtrun::worker::cuda {
namespace {

constexpr int kThreads = 256;

struct ReluOf {
  __device__ float operator()(float x) const { return x < 0 ? 0.0f : x; }
};
struct ReluGradient {
  __device__ float operator()(float out, float d) const { return out > 0 ? d : 0.0f; }
};

constexpr float kRootOf2OverPi = 0.7978845608028654f, kCubic = 0.044715f;

struct GeluOf {
  __device__ float operator()(float x) const {
    return 0.5f * x * (1.0f + tanhf(kRootOf2OverPi * (x + kCubic * x * x * x)));
  }
};
struct GeluGradient {
  __device__ float operator()(float x, float d) const {
    const float tanh = tanhf(kRootOf2OverPi * (x + kCubic * x * x * x));
    const float inner = kRootOf2OverPi * (1.0f + 3.0f * kCubic * x * x);
    return d * (0.5f * (1.0f + tanh) + 0.5f * x * (1.0f - tanh * tanh) * inner);
  }
};

struct Sum {
  __device__ float operator()(float left, float right) const { return left + right; }
};

// out = or += op(left[i]) or op(left[i], right[i]); a thread computes kCount elements.
template <int kCount, typename T, typename Op>
__global__ void __launch_bounds__(kThreads)
    map_kernel(std::size_t count, Op op, const T* left, const T* right, bool add, T* out) {
  wait_for_previous();
  const std::size_t at = (static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x) * kCount;
  if (at >= count) return;
  Pack<T, kCount> x = load<kCount>(left + at, count - at), y, old;
  if constexpr (std::is_invocable_v<Op, float, float>) y = load<kCount>(right + at, count - at);
  if (add) old = load<kCount>(out + at, count - at);
#pragma unroll
  for (int e = 0; e < kCount; ++e) {
    float value;
    if constexpr (std::is_invocable_v<Op, float, float>)
      value = op(to_float(x.v[e]), to_float(y.v[e]));
    else
      value = op(to_float(x.v[e]));
    x.v[e] = from_float<T>(add ? to_float(old.v[e]) + value : value);
  }
  store(out + at, x, count - at);
}

template <typename Op, typename T>
void map(cudaStream_t stream, std::size_t count, const T* left, const T* right, bool add, T* out) {
  if (count == 0) return;
  if (wide({left, right, out}))
    launch(map_kernel<kWide<T>, T, Op>, blocks_of(count, kThreads * kWide<T>), kThreads, 0, stream, count,
           Op{}, left, right, add, out);
  else
    launch(map_kernel<1, T, Op>, blocks_of(count, kThreads), kThreads, 0, stream, count, Op{}, left, right,
           add, out);
}

struct Words4 {
  std::uint32_t word[4];
};

// Philox4x32-10 of the counter (index, words.a, words.b, words.use), as in worker/core/philox.cc.
__device__ inline Words4 philox(const RandomStream::Words& words, std::uint32_t index) {
  std::uint32_t c0 = index, c1 = words.a, c2 = words.b, c3 = words.use;
  std::uint32_t k0 = words.key[0], k1 = words.key[1];
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53} * c0;
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57} * c2;
    c0 = static_cast<std::uint32_t>(product1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<std::uint32_t>(product1);
    c2 = static_cast<std::uint32_t>(product0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<std::uint32_t>(product0);
    k0 += 0x9E3779B9, k1 += 0xBB67AE85;
  }
  return {{c0, c1, c2, c3}};
}

template <int kCount, typename T>
__global__ void __launch_bounds__(kThreads)
    dropout_kernel(std::size_t count, const RandomStream::Words* stream, float probability, float factor,
                   const T* in, bool add, T* out) {
  wait_for_previous();
  const RandomStream::Words words = *stream;
  const std::size_t at = (static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x) * kCount;
  if (at >= count) return;
  Pack<T, kCount> x = load<kCount>(in + at, count - at), old;
  if (add) old = load<kCount>(out + at, count - at);
  Words4 bits = philox(words, static_cast<std::uint32_t>(at / 4));
#pragma unroll
  for (int e = 0; e < kCount; ++e) {
    if (e > 0 && e % 4 == 0) bits = philox(words, static_cast<std::uint32_t>(at / 4 + e / 4));
    const std::uint32_t word = kCount == 1 ? bits.word[at % 4] : bits.word[e % 4];
    const float uniform = static_cast<float>(word >> 8) * 0x1p-24f;
    // Multiplied also where dropped, so that a value that is not finite stays so.
    const float value = to_float(x.v[e]) * (uniform >= probability ? factor : 0.0f);
    x.v[e] = from_float<T>(add ? to_float(old.v[e]) + value : value);
  }
  store(out + at, x, count - at);
}

template <int kCount>
__global__ void __launch_bounds__(kThreads)
    to_bf16_kernel(std::size_t count, const float* in, __nv_bfloat16* out) {
  wait_for_previous();
  const std::size_t at = (static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x) * kCount;
  if (at >= count) return;
  const Pack<float, kCount> x = load<kCount>(in + at, count - at);
  Pack<__nv_bfloat16, kCount> y;
#pragma unroll
  for (int e = 0; e < kCount; ++e) y.v[e] = from_float<__nv_bfloat16>(x.v[e]);
  store(out + at, y, count - at);
}

template <int kCount, typename T>
__global__ void __launch_bounds__(kThreads) fill_kernel(std::size_t count, T value, T* out) {
  wait_for_previous();
  const std::size_t at = (static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x) * kCount;
  if (at >= count) return;
  Pack<T, kCount> pack;
#pragma unroll
  for (int e = 0; e < kCount; ++e) pack.v[e] = value;
  store(out + at, pack, count - at);
}

}  // namespace

template <typename T>
void relu(cudaStream_t stream, std::size_t count, const T* in, T* out) {
  map<ReluOf, T>(stream, count, in, nullptr, false, out);
}
template <typename T>
void relu_backward(cudaStream_t stream, std::size_t count, const T* out, const T* out_gradient, bool add,
                   T* in_gradient) {
  map<ReluGradient, T>(stream, count, out, out_gradient, add, in_gradient);
}

template <typename T>
void gelu(cudaStream_t stream, std::size_t count, const T* in, T* out) {
  map<GeluOf, T>(stream, count, in, nullptr, false, out);
}
template <typename T>
void gelu_backward(cudaStream_t stream, std::size_t count, const T* in, const T* out_gradient, bool add,
                   T* in_gradient) {
  map<GeluGradient, T>(stream, count, in, out_gradient, add, in_gradient);
}

template <typename T>
void add(cudaStream_t stream, std::size_t count, const T* left, const T* right, T* out) {
  map<Sum, T>(stream, count, left, right, false, out);
}
template <typename T>
void accumulate(cudaStream_t stream, std::size_t count, const T* from, T* to) {
  map<Sum, T>(stream, count, to, from, false, to);
}

template <typename T>
void dropout(cudaStream_t stream, std::size_t count, const RandomStream::Words* words, float probability,
             const T* in, bool add, T* out) {
  if (count == 0) return;
  const float factor = 1.0f / (1.0f - probability);
  if (wide({in, out}))
    launch(dropout_kernel<kWide<T>, T>, blocks_of(count, kThreads * kWide<T>), kThreads, 0, stream, count,
           words, probability, factor, in, add, out);
  else
    launch(dropout_kernel<1, T>, blocks_of(count, kThreads), kThreads, 0, stream, count, words, probability,
           factor, in, add, out);
}

void to_bf16(cudaStream_t stream, std::size_t count, const float* in, __nv_bfloat16* out) {
  constexpr int kCount = 8;  // 16 bytes of bf16, twice as many of fp32
  if (count == 0) return;
  if (wide({in, out}))
    launch(to_bf16_kernel<kCount>, blocks_of(count, kThreads * kCount), kThreads, 0, stream, count, in, out);
  else
    launch(to_bf16_kernel<1>, blocks_of(count, kThreads), kThreads, 0, stream, count, in, out);
}

template <typename T>
void fill(cudaStream_t stream, std::size_t count, float value, T* out) {
  if (count == 0) return;
  const T rounded = T(value);
  if (wide({out}))
    launch(fill_kernel<kWide<T>, T>, blocks_of(count, kThreads * kWide<T>), kThreads, 0, stream, count,
           rounded, out);
  else
    launch(fill_kernel<1, T>, blocks_of(count, kThreads), kThreads, 0, stream, count, rounded, out);
}

#define DTRUN_ELEMENTWISE(T)                                                                               \
  template void relu(cudaStream_t, std::size_t, const T*, T*);                                             \
  template void relu_backward(cudaStream_t, std::size_t, const T*, const T*, bool, T*);                    \
  template void gelu(cudaStream_t, std::size_t, const T*, T*);                                             \
  template void gelu_backward(cudaStream_t, std::size_t, const T*, const T*, bool, T*);                    \
  template void add(cudaStream_t, std::size_t, const T*, const T*, T*);                                    \
  template void accumulate(cudaStream_t, std::size_t, const T*, T*);                                       \
  template void dropout(cudaStream_t, std::size_t, const RandomStream::Words*, float, const T*, bool, T*); \
  template void fill(cudaStream_t, std::size_t, float, T*);
DTRUN_ELEMENTWISE(float)
DTRUN_ELEMENTWISE(__nv_bfloat16)

}  // namespace dtrun::worker::cuda
