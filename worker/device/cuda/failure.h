// CUDA's errors as a worker's.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

namespace dtrun::worker::cuda {

// Throws WorkerError unless `result` is cudaSuccess. doing: "copying 8 bytes". With EX_OSERR: GPU or driver
// failed, and this process can do nothing more with them; another one may.
void check(cudaError_t result, const char* doing);
// Of launches, which return nothing.
void check_launch(const char* kernel);

// `what` the GPU has no room for, in words: "the activations of 16 samples". `advice`: what to do, if more is
// known than what always helps. EX_CONFIG.
[[noreturn]] void out_of_memory(const std::string& what, std::size_t bytes, const std::string& advice = "");

// Of the current GPU, as the driver counts it; 0 if it does not say.
std::size_t free_memory();

}  // namespace dtrun::worker::cuda
