// The functions that kernels call, under CUDA's names. Sums by atomics on floats are missing on purpose:
// their order is anybody's guess, so code that uses them must not compile in the tests.
#pragma once

#include <cuda_runtime_api.h>

#include <bit>
#include <cmath>

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

template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lanes) {
  const int other = cuda_on_cpu::this_block().lane() ^ lanes;
  return cuda_on_cpu::this_block().exchange(mask, value).template from<T>(other);
}

// ---- Numbers ----

inline unsigned atomicMax(unsigned* p, unsigned value) {
  unsigned old = __atomic_load_n(p, __ATOMIC_RELAXED);
  while (value > old &&
         !__atomic_compare_exchange_n(p, &old, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  return old;
}
inline float __expf(float x) { return std::exp(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
