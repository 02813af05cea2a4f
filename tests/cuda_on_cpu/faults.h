// Faults that a test plans.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>

namespace cuda_on_cpu {

struct Faults {
  std::uint64_t allocation = 0;  // this cudaMalloc (1 is the next) gives cudaErrorMemoryAllocation; 0: none
  std::uint64_t host_allocation = 0;  // the same for pinned memory
  std::uint64_t launch = 0;  // this kernel or matmul does not run, and the device is broken from then on
  cudaError_t launch_error = cudaErrorIllegalAddress;
  cudaError_t host_register = cudaSuccess;  // the result of every cudaHostRegister
  cudaError_t capture = cudaSuccess;        // the result of captures
  std::uint64_t captures = UINT64_MAX;      // so many of them
  cudaError_t every_call =
      cudaSuccess;  // cudaErrorInsufficientDriver, say, from every function that can fail
};

// Counting begins anew. Also mends the device.
void plan_faults(const Faults& faults);

// Parses "allocation:N", "host-allocation:N", "launch:N:ERROR", "host-register:ERROR", "capture:ERROR" and
// "every-call:ERROR", separated by commas; errors by their numbers. Anything else ends the process.
// DTRUN_TEST_GPU_FAULT is this, planned at the first call. If DTRUN_TEST_GPU_FAULT_ONCE names a file, only
// the process that can create it has the faults: one worker of a job, and not the one that takes its place.
Faults faults_of(const std::string& text);

// Whether this process is the one that can create the file.
bool is_first_process(const std::string& file);

// The error for the call that asks.
cudaError_t fault_of_call();
cudaError_t fault_of_allocation();
cudaError_t fault_of_host_allocation();
cudaError_t fault_of_host_register();
cudaError_t fault_of_launch();
cudaError_t fault_of_capture();

}  // namespace cuda_on_cpu
