#include "tests/cuda_on_cpu/streams.h"

#include <cstdio>

#include "tests/cuda_on_cpu/counters.h"
#include "tests/cuda_on_cpu/errors.h"
#include "tests/cuda_on_cpu/faults.h"
#include "tests/cuda_on_cpu/kernel_names.h"
#include "tests/cuda_on_cpu/launch.h"
#include "tests/cuda_on_cpu/machine.h"
#include "tests/cuda_on_cpu/memory.h"
#include "tests/cuda_on_cpu/scheduler.h"
#include "tests/cuda_on_cpu/traffic.h"

namespace cuda_on_cpu {

cudaError_t usable() {
  if (const cudaError_t fault = fault_of_call(); fault != cudaSuccess) return fault;
  if (machine.gpus.empty()) return cudaErrorNoDevice;
  return broken();
}

cudaError_t enqueue(cudaStream_t stream, Operation operation, bool blocks, Point* point) {
  const cudaError_t error = usable();
  return error != cudaSuccess ? error : scheduler().enqueue(stream, std::move(operation), blocks, point);
}

cudaError_t wait_for(const Point& point) { return scheduler().wait_for(point); }

namespace {

// A GPU cannot see pageable memory. Pointers within structs are not looked at.
bool is_out_of_sight(const Grid& grid, const std::vector<const void*>& pointers) {
  for (std::size_t i = 0; i < pointers.size(); ++i) {
    if (!pointers[i] || memory_of(pointers[i]) != Memory::kPageable) continue;
    std::fprintf(stderr, "cuda_on_cpu: argument %zu of %s points to pageable memory of the host\n", i,
                 function_name(grid.kernel).c_str());
    return true;
  }
  return false;
}

}  // namespace

cudaError_t enqueue_kernel(const Grid& grid, cudaStream_t stream, const std::vector<const void*>& pointers,
                           std::function<void()> thread) {
  cudaError_t error = check_grid(grid);
  if (error == cudaSuccess) {
    const cudaError_t wrong = is_out_of_sight(grid, pointers) ? cudaErrorIllegalAddress : cudaSuccess;
    const std::size_t listed = list({.name = function_name(grid.kernel)});
    Operation operation{[grid, wrong, listed, thread = std::move(thread)] {
      count_kernel(grid.kernel);
      const cudaError_t planned = fault_of_launch();
      if (const cudaError_t fault = planned != cudaSuccess ? planned : wrong; fault != cudaSuccess) {
        break_device(fault);
      } else {
        const Watched watched(listed, grid.programmatic);
        run_grid(grid, thread);
      }
    }};
    operation.launch = true;
    error = enqueue(stream, std::move(operation));
  }
  return remember(error);
}

}  // namespace cuda_on_cpu
