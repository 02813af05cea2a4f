// Included first by every kernel's file: CUDA's keywords, and launch(), for nvcc. The tests compile the same
// files with the host's compiler, which takes the keywords from a header of its own (cuda_on_cpu.h) that runs
// kernels on the processor. Only this file knows the compiler.
#pragma once

#include <cstddef>
#include <utility>

#include "worker/device/cuda/kernels/launches.h"

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <tuple>

// DYNAMIC_SHARED: `name` becomes a T* to the block's dynamic shared memory. SHARED_ARRAY: an array of n in
// static shared memory.
#define DYNAMIC_SHARED(T, name)                                         \
  extern __shared__ __align__(16) unsigned char dtrun_dynamic_shared[]; \
  T* const name = reinterpret_cast<T*>(dtrun_dynamic_shared)
#define SHARED_ARRAY(T, name, n) __shared__ T name[n]

// Each kernel's first statement. Waits until all earlier work of the stream is done, then lets the next
// kernel of the stream be launched: its blocks take the places of this kernel's finished blocks, and wait
// here (programmatic dependent launch, from compute capability 9.0 on).
__device__ inline void wait_for_previous() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}

// Enqueues kernel(arguments...) on `stream`. A launch's error stays in cudaGetLastError().
template <typename... P, typename... A>
void launch(void (*kernel)(P...), dim3 grid, dim3 block, std::size_t shared_bytes, cudaStream_t stream,
            A&&... arguments) {
  std::tuple<P...> values(std::forward<A>(arguments)...);
  cudaLaunchAttribute programmatic{};
  programmatic.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  programmatic.val.programmaticStreamSerializationAllowed = 1;
  const cudaLaunchConfig_t how{.gridDim = grid,
                               .blockDim = block,
                               .dynamicSmemBytes = shared_bytes,
                               .stream = stream,
                               .attrs = &programmatic,
                               .numAttrs = dtrun::worker::cuda::programmatic_launches() ? 1u : 0u};
  std::apply(
      [&](auto&... value) {
        void* pointers[] = {&value...};
        cudaLaunchKernelExC(&how, reinterpret_cast<const void*>(kernel), pointers);
      },
      values);
}
#else
#include <cuda_on_cpu.h>

inline void wait_for_previous() { cuda_on_cpu::wait_for_previous(); }

template <typename... P, typename... A>
void launch(void (*kernel)(P...), dim3 grid, dim3 block, std::size_t shared_bytes, cudaStream_t stream,
            A&&... arguments) {
  cuda_on_cpu::launch_kernel(dtrun::worker::cuda::programmatic_launches(), kernel, grid, block, shared_bytes,
                             stream, std::forward<A>(arguments)...);
}
#endif
