// The functions that kernels call, under CUDA's names. Atomics on floats are missing on purpose: the order of
// their sums is anybody's guess, so code that uses them must not compile in the tests.
#pragma once

#include <cuda_runtime_api.h>
#include <vector_functions.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "tests/cuda_on_cpu/block.h"
#include "tests/cuda_on_cpu/settings.h"

// CUDA's headers leave these words without meaning for the host.
#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __shared__  // shared memory is one of the two below, which nvcc finds in kernels/gpu.h

// T* name: the block's dynamic shared memory, and an array of n in its static one. Both are full of NaN at
// first.
#define DYNAMIC_SHARED(T, name) T* const name = static_cast<T*>(::cuda_on_cpu::this_block().dynamic_shared())
#define SHARED_ARRAY(T, name, n)                                                               \
  T* const name = [] {                                                                         \
    static constexpr char place = 0;                                                           \
    return static_cast<T*>(::cuda_on_cpu::this_block().shared_array(&place, (n) * sizeof(T))); \
  }()

// ---- What threads wait for together ----

namespace cuda_on_cpu {

// wait_for_previous() of worker/device/cuda/kernels/gpu.h: nothing, as there, in kernels that were compiled
// for less than 9.0.
CUDA_ON_CPU_UNSEEN inline void wait_for_previous() {
  if (settings.compiled_for >= 90) this_block().wait_for_previous();
}

}  // namespace cuda_on_cpu

inline void __syncthreads() { cuda_on_cpu::this_block().barrier(); }
inline int __syncthreads_count(int vote) { return cuda_on_cpu::this_block().barrier_count(vote != 0); }
inline int __syncthreads_or(int vote) { return __syncthreads_count(vote) > 0; }
inline int __syncthreads_and(int vote) { return __syncthreads_count(vote == 0) == 0; }
inline void __syncwarp(unsigned mask = ~0u) { cuda_on_cpu::this_block().exchange(mask, 0, true); }

template <typename T>
T __shfl_sync(unsigned mask, T value, int lane, int width = warpSize) {
  const int first = cuda_on_cpu::this_block().lane() & ~(width - 1);
  return cuda_on_cpu::this_block().exchange(mask, value).template from<T>(first + (lane & (width - 1)));
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = warpSize) {
  const int self = cuda_on_cpu::this_block().lane(), other = self ^ lanes;
  const bool within = other < (self & ~(width - 1)) + width;
  return cuda_on_cpu::this_block().exchange(mask, value).template from<T>(within ? other : self);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = warpSize) {
  const int self = cuda_on_cpu::this_block().lane();
  const bool within = (self & (width - 1)) + static_cast<int>(delta) < width;
  return cuda_on_cpu::this_block()
      .exchange(mask, value)
      .template from<T>(within ? self + static_cast<int>(delta) : self);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = warpSize) {
  const int self = cuda_on_cpu::this_block().lane();
  const bool within = (self & (width - 1)) >= static_cast<int>(delta);
  return cuda_on_cpu::this_block()
      .exchange(mask, value)
      .template from<T>(within ? self - static_cast<int>(delta) : self);
}
inline unsigned __ballot_sync(unsigned mask, int vote) {
  const cuda_on_cpu::Exchanged votes =
      cuda_on_cpu::this_block().exchange(mask, static_cast<unsigned char>(vote != 0));
  unsigned ballot = 0;
  for (int lane = 0; lane < warpSize; ++lane) {
    if (mask >> lane & 1) ballot |= unsigned{votes.from<unsigned char>(lane)} << lane;
  }
  return ballot;
}
inline int __any_sync(unsigned mask, int vote) { return __ballot_sync(mask, vote) != 0; }
inline int __all_sync(unsigned mask, int vote) { return __ballot_sync(mask, vote) == mask; }

// A fence for other threads of the device; here writes are seen at once.
inline void __threadfence() {}
inline void __threadfence_block() {}

// ---- Memory, with a word on the cache that means nothing here ----

template <typename T>
T __ldg(const T* p) {
  return *p;
}
template <typename T>
T __ldcs(const T* p) {
  return *p;
}
template <typename T>
T __ldcg(const T* p) {
  return *p;
}
template <typename T>
T __ldca(const T* p) {
  return *p;
}
template <typename T>
T __ldlu(const T* p) {
  return *p;
}
template <typename T>
void __stcs(T* p, T value) {
  *p = value;
}
template <typename T>
void __stcg(T* p, T value) {
  *p = value;
}
template <typename T>
void __stwt(T* p, T value) {
  *p = value;
}

// ---- Atomics on integers ----

inline int atomicAdd(int* p, int value) { return __atomic_fetch_add(p, value, __ATOMIC_RELAXED); }
inline unsigned atomicAdd(unsigned* p, unsigned value) {
  return __atomic_fetch_add(p, value, __ATOMIC_RELAXED);
}
inline unsigned long long atomicAdd(unsigned long long* p, unsigned long long value) {
  return __atomic_fetch_add(p, value, __ATOMIC_RELAXED);
}
inline int atomicOr(int* p, int value) { return __atomic_fetch_or(p, value, __ATOMIC_RELAXED); }
inline unsigned atomicOr(unsigned* p, unsigned value) {
  return __atomic_fetch_or(p, value, __ATOMIC_RELAXED);
}
inline int atomicExch(int* p, int value) { return __atomic_exchange_n(p, value, __ATOMIC_RELAXED); }
inline unsigned atomicExch(unsigned* p, unsigned value) {
  return __atomic_exchange_n(p, value, __ATOMIC_RELAXED);
}
inline int atomicCAS(int* p, int expected, int value) {
  __atomic_compare_exchange_n(p, &expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return expected;
}
inline unsigned atomicCAS(unsigned* p, unsigned expected, unsigned value) {
  __atomic_compare_exchange_n(p, &expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return expected;
}
template <typename T>
T cuda_on_cpu_atomic_pick(T* p, T value, bool larger) {
  T old = __atomic_load_n(p, __ATOMIC_RELAXED);
  while ((larger ? value > old : value < old) &&
         !__atomic_compare_exchange_n(p, &old, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  return old;
}
inline int atomicMax(int* p, int value) { return cuda_on_cpu_atomic_pick(p, value, true); }
inline unsigned atomicMax(unsigned* p, unsigned value) { return cuda_on_cpu_atomic_pick(p, value, true); }
inline int atomicMin(int* p, int value) { return cuda_on_cpu_atomic_pick(p, value, false); }
inline unsigned atomicMin(unsigned* p, unsigned value) { return cuda_on_cpu_atomic_pick(p, value, false); }

// ---- Arithmetic: those that are rounded to nearest as on the GPU, then those that are only near it ----

inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fsub_rn(float x, float y) { return x - y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __fmaf_rn(float x, float y, float z) { return std::fma(x, y, z); }
inline float __fsqrt_rn(float x) { return std::sqrt(x); }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __saturatef(float x) { return x >= 1.0f ? 1.0f : x > 0.0f ? x : 0.0f; }  // 0 for NaN

inline float __expf(float x) { return std::exp(x); }
inline float __exp10f(float x) { return std::pow(10.0f, x); }
inline float __logf(float x) { return std::log(x); }
inline float __log2f(float x) { return std::log2(x); }
inline float __powf(float x, float y) { return std::pow(x, y); }
inline float __sinf(float x) { return std::sin(x); }
inline float __cosf(float x) { return std::cos(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline float __frsqrt_rn(float x) { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(x))); }
inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }

// ---- Integers and bits ----

inline unsigned __umulhi(unsigned x, unsigned y) {
  return static_cast<unsigned>((std::uint64_t{x} * y) >> 32);
}
inline int __mulhi(int x, int y) { return static_cast<int>((std::int64_t{x} * y) >> 32); }
inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
  return static_cast<unsigned long long>((static_cast<unsigned __int128>(x) * y) >> 64);
}
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __ffs(int x) { return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1; }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline int __float2int_rn(float x) { return static_cast<int>(std::nearbyint(x)); }
inline int __float2int_rz(float x) { return static_cast<int>(x); }
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline float __uint2float_rn(unsigned x) { return static_cast<float>(x); }

// CUDA has these without a namespace.
inline int min(int x, int y) { return x < y ? x : y; }
inline int max(int x, int y) { return x < y ? y : x; }
inline unsigned min(unsigned x, unsigned y) { return x < y ? x : y; }
inline unsigned max(unsigned x, unsigned y) { return x < y ? y : x; }
inline long long min(long long x, long long y) { return x < y ? x : y; }
inline long long max(long long x, long long y) { return x < y ? y : x; }
inline float min(float x, float y) { return std::fmin(x, y); }
inline float max(float x, float y) { return std::fmax(x, y); }
