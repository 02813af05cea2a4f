// CUDA's errors as WorkerErrors.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

namespace dtrun::worker::cuda {

// Throws WorkerError unless `result` is cudaSuccess. doing: "copying 8 bytes". The code is EX_OSERR: GPU or
// driver failed, and this process cannot use them any more; another process may.
void check(cudaError_t result, const char* doing);
// check() for launches, which return nothing.
void check_launch(const char* kernel);

// Throws WorkerError, EX_CONFIG. `what`: the memory that the GPU has no room for, "the activations of 16
// samples". `advice`: a remedy, in addition to the usual ones.
[[noreturn]] void out_of_memory(const std::string& what, std::size_t bytes, const std::string& advice = "");

// The free memory of the current GPU in bytes, as the driver counts it; 0 if the driver does not tell.
std::size_t free_memory();

}  // namespace dtrun::worker::cuda
