// For trying a library out: makes numbers to compute with, and compares results. elementwise.h has the rules
// for all kernels.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstddef>

namespace dtrun::worker::cuda {

// The compute capability that the kernels which this GPU runs were compiled for, 90 for 9.0; 0 if the GPU can
// run none.
int architecture_of_kernels();

// out[i]: uniform between -largest and largest; a function of `seed` and i alone.
template <typename T>
void scatter(cudaStream_t stream, std::size_t count, unsigned seed, float largest, T* out);

// apart[0] = the largest |left[i] - right[i]|, or infinity if one of them is NaN; apart[1] = the largest
// |left[i]|. REQUIRES: both were 0.
template <typename T>
void compare(cudaStream_t stream, std::size_t count, const T* left, const T* right, float* apart);

}  // namespace dtrun::worker::cuda
