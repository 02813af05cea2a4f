// Called by launch() of worker/device/cuda/kernels/gpu.h.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "tests/cuda_on_cpu/grid.h"

namespace cuda_on_cpu {

// Enqueues a grid whose every thread calls `thread`. `pointers` are the kernel's arguments, null where they
// are something else. An error stays in cudaGetLastError(), too.
cudaError_t enqueue_kernel(const Grid& grid, cudaStream_t stream, const std::vector<const void*>& pointers,
                           std::function<void()> thread);

template <typename T>
const void* pointer_of([[maybe_unused]] const T& argument) {
  if constexpr (std::is_pointer_v<T>) {
    return argument;
  } else {
    return nullptr;
  }
}

// Enqueues kernel(arguments...) on `stream`; arguments are copied now. Faults of the launch stay in
// cudaGetLastError(). `programmatic` as in Grid.
template <typename... P, typename... A>
void launch_kernel(bool programmatic, void (*kernel)(P...), dim3 grid, dim3 block, std::size_t shared_bytes,
                   cudaStream_t stream, A&&... arguments) {
  std::tuple<P...> values(std::forward<A>(arguments)...);
  const auto pointers =
      std::apply([](const auto&... value) { return std::vector<const void*>{pointer_of(value)...}; }, values);
  enqueue_kernel({reinterpret_cast<const void*>(kernel), grid, block, shared_bytes, programmatic}, stream,
                 pointers, [kernel, values = std::move(values)] { std::apply(kernel, values); });
}

template <typename... P, typename... A>
void launch(void (*kernel)(P...), dim3 grid, dim3 block, std::size_t shared_bytes, cudaStream_t stream,
            A&&... arguments) {
  launch_kernel(false, kernel, grid, block, shared_bytes, stream, std::forward<A>(arguments)...);
}

}  // namespace cuda_on_cpu

// As cuda_runtime.h has it for C++.
template <typename T>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, T* kernel) {
  return ::cudaFuncGetAttributes(attributes, reinterpret_cast<const void*>(kernel));
}
