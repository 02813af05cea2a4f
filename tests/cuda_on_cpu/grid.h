// A kernel's grid: its blocks, in the order that the settings say.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>

namespace cuda_on_cpu {

// The parameters of a launch beside the kernel's arguments.
struct Grid {
  const void* kernel = nullptr;
  dim3 blocks, threads;
  std::size_t dynamic_bytes = 0;  // dynamic shared memory
  // May begin while what is in front of it in its stream still runs (programmatic dependent launch). Here
  // none does; but such a kernel must not touch device memory before it has waited (traffic.h).
  bool programmatic = false;
};

// Calls `thread` for each thread of each block. On the simulated device's thread only.
void run_grid(const Grid& grid, const std::function<void()>& thread);

// cudaErrorInvalidConfiguration or cudaErrorInvalidValue for what a GPU of compute capability 9.0 refuses.
cudaError_t check_grid(const Grid& grid);

}  // namespace cuda_on_cpu
