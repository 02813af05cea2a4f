#include "tests/cuda_on_cpu/streams.h"

#include <cstdio>
#include <cstdlib>

#include "tests/cuda_on_cpu/counters.h"
#include "tests/cuda_on_cpu/errors.h"
#include "tests/cuda_on_cpu/faults.h"
#include "tests/cuda_on_cpu/launch.h"
#include "tests/cuda_on_cpu/machine.h"
#include "tests/cuda_on_cpu/scheduler.h"

namespace cuda_on_cpu {

cudaError_t usable() {
  if (const cudaError_t fault = fault_of_call(); fault != cudaSuccess) return fault;
  if (machine.gpus.empty()) return cudaErrorNoDevice;
  return Scheduler::on_device_thread() ? cudaErrorNotPermitted : broken();
}

cudaError_t enqueue(cudaStream_t stream, Operation operation, bool blocks) {
  const cudaError_t error = usable();
  return error != cudaSuccess ? error : scheduler().enqueue(stream, std::move(operation), blocks);
}

void synchronize(cudaStream_t stream) {
  cudaError_t error = scheduler().wait_for_stream(stream);
  if (error == cudaSuccess) error = last_error();
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "cuda_on_cpu: synchronize() ends with %s\n", cudaGetErrorName(error));
  std::abort();
}

cudaError_t enqueue_kernel(const Grid& grid, cudaStream_t stream, std::function<void()> thread) {
  cudaError_t error = check_grid(grid);
  if (error == cudaSuccess) {
    Operation operation{[grid, thread = std::move(thread)] {
      count_kernel(grid.kernel);
      if (const cudaError_t fault = fault_of_launch(); fault != cudaSuccess) {
        break_device(fault);
      } else {
        run_grid(grid, thread);
      }
    }};
    operation.launch = true;
    error = enqueue(stream, std::move(operation));
  }
  return remember(error);
}

}  // namespace cuda_on_cpu
