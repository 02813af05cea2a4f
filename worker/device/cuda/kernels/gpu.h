// What every kernel's file begins with: CUDA's words, and launch(), as nvcc compiles them. The tests compile
// the same files with the host's compiler, which finds these words in a header of its own (cuda_on_cpu.h)
// that runs kernels on the processor. This is the one place that knows which compiler it is.
#pragma once

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <tuple>
#include <utility>

// T* name: the block's dynamic shared memory, and an array of n in its static one.
#define DYNAMIC_SHARED(T, name)                                         \
  extern __shared__ __align__(16) unsigned char dtrun_dynamic_shared[]; \
  T* const name = reinterpret_cast<T*>(dtrun_dynamic_shared)
#define SHARED_ARRAY(T, name, n) __shared__ T name[n]

// Enqueues kernel(arguments...) on `stream`. Faults of the launch stay in cudaGetLastError().
template <typename... P, typename... A>
void launch(void (*kernel)(P...), dim3 grid, dim3 block, std::size_t shared_bytes, cudaStream_t stream,
            A&&... arguments) {
  std::tuple<P...> values(std::forward<A>(arguments)...);
  std::apply(
      [&](auto&... value) {
        void* pointers[] = {&value...};
        cudaLaunchKernel(reinterpret_cast<const void*>(kernel), grid, block, pointers, shared_bytes, stream);
      },
      values);
}
#else
#include <cuda_on_cpu.h>
#endif
