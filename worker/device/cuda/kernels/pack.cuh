// Several elements that are loaded and stored as one, and sums over a warp. A kernel is compiled for packs of
// 16 bytes and for single elements; its caller picks by alignment and width.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "worker/device/cuda/kernels/gpu.h"

namespace dtrun::worker::cuda {

inline constexpr int kWarp = 32;

// Elements of T in 16 bytes.
template <typename T>
inline constexpr int kWide = 16 / sizeof(T);

template <typename T, int kCount>
struct alignas(sizeof(T) * kCount < 16 ? sizeof(T) * kCount : 16) Pack {
  T v[kCount];
};

__device__ inline float to_float(float value) { return value; }
__device__ inline float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }
template <typename T>
__device__ T from_float(float value);
template <>
__device__ inline float from_float<float>(float value) {
  return value;
}
template <>
__device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float value) {
  return __float2bfloat16_rn(value);
}

template <int kCount, typename T>
__device__ Pack<T, kCount> load(const T* from) {
  return *reinterpret_cast<const Pack<T, kCount>*>(from);
}
template <int kCount, typename T>
__device__ void store(T* to, const Pack<T, kCount>& pack) {
  *reinterpret_cast<Pack<T, kCount>*>(to) = pack;
}

// load() and store() at the end of a row, where only `left` elements exist: those behind them are loaded as
// 0, and not stored.
template <int kCount, typename T>
__device__ Pack<T, kCount> load(const T* from, std::size_t left) {
  if (left >= kCount) return load<kCount>(from);
  Pack<T, kCount> pack;
  for (int e = 0; e < kCount; ++e) pack.v[e] = static_cast<std::size_t>(e) < left ? from[e] : T(0.0f);
  return pack;
}
template <int kCount, typename T>
__device__ void store(T* to, const Pack<T, kCount>& pack, std::size_t left) {
  if (left >= kCount) return store(to, pack);
  for (int e = 0; e < kCount; ++e)
    if (static_cast<std::size_t>(e) < left) to[e] = pack.v[e];
}

// e^x. For bf16 the hardware's two instructions are exact enough: their error is far below the rounding to
// bf16.
template <typename T>
__device__ float exponential(float x);
template <>
__device__ inline float exponential<float>(float x) {
  return expf(x);
}
template <>
__device__ inline float exponential<__nv_bfloat16>(float x) {
  return __expf(x);
}

// `a` if one is NaN.
__device__ inline float larger(float a, float b) { return b > a ? b : a; }

// All lanes get the same bits, since addition commutes.
__device__ inline float warp_sum(float value) {
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) value += __shfl_xor_sync(0xffffffffu, value, lanes);
  return value;
}

// On the host: whether all pointers are 16-byte aligned; null is.
inline bool wide(std::initializer_list<const void*> pointers) {
  std::uintptr_t bits = 0;
  for (const void* pointer : pointers) bits |= reinterpret_cast<std::uintptr_t>(pointer);
  return bits % 16 == 0;
}

inline unsigned blocks_of(std::size_t items, std::size_t per_block) {
  return static_cast<unsigned>((items + per_block - 1) / per_block);
}

}  // namespace dtrun::worker::cuda
