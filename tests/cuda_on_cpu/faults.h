// Faults that a test plans.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>

namespace cuda_on_cpu {

struct Faults {
  // This kernel or matmul (1 is the next) does not run, and the device is broken from then on; 0: none.
  std::uint64_t launch = 0;
  cudaError_t launch_error = cudaErrorIllegalAddress;
  cudaError_t host_register = cudaSuccess;  // the result of every cudaHostRegister
  cudaError_t capture = cudaSuccess;        // the result of captures
  std::uint64_t captures = UINT64_MAX;      // so many of them
  cudaError_t every_call =
      cudaSuccess;  // cudaErrorInsufficientDriver, say, from every function that can fail
};

// Counting begins anew. Also mends the device.
void plan_faults(const Faults& faults);

// DTRUN_TEST_GPU_FAULT plans one from the beginning: "launch:N:ERROR", "capture:ERROR" or "every-call:ERROR",
// with the error's number. If DTRUN_TEST_GPU_FAULT_ONCE names a file, only the process that can create it has
// the fault: one worker of a job, and not the one that takes its place.

// Whether this process is the one that can create the file.
bool is_first_process(const std::string& file);

// The error for the call that asks.
cudaError_t fault_of_call();
cudaError_t fault_of_host_register();
cudaError_t fault_of_launch();
cudaError_t fault_of_capture();

}  // namespace cuda_on_cpu
