// The error for cudaGetLastError.
#pragma once

#include <cuda_runtime_api.h>

namespace cuda_on_cpu {

// Keeps an error as the calling thread's last; returns it.
cudaError_t remember(cudaError_t error);
cudaError_t last_error();
void forget_last_error();

// An error that no later call gets rid of, as real devices have it after a kernel's illegal access or a
// broken memory: nothing runs any more, and every call returns it. cudaSuccess while there is none.
cudaError_t broken();
void break_device(cudaError_t error);
// For tests: as in a new process.
void mend_device();

}  // namespace cuda_on_cpu
