// The simulated GPUs.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <vector>

namespace cuda_on_cpu {

struct Machine {
  std::vector<int> gpus = {0};  // numbers of those that this process may use, as on the host
  std::size_t memory_bytes = std::size_t{8} << 30;  // of each
};

// The machine that the environment describes:
//   DTRUN_TEST_GPUS         how many the host has (1 if unset)
//   DTRUN_TEST_GPU_MEMORY   bytes of each (8 GiB if unset)
//   CUDA_VISIBLE_DEVICES    those that the process may use, as CUDA has it: "1,0"; none after the first wrong
//   one
Machine machine_of_environment();

// To be changed only while no device memory is allocated.
inline Machine machine = machine_of_environment();

// The calling thread's, 0 in each new thread, as cudaSetDevice leaves it.
int current_device();
void set_current_device(int device);

}  // namespace cuda_on_cpu
