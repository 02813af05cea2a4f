// For trying a library out: numbers to compute with, and how far two results are apart. See elementwise.h
// for what holds for all kernels.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstddef>

namespace dtrun::worker::cuda {

// What the kernels that this GPU runs were compiled for, as 90 is compute capability 9.0; 0 if it can run
// none.
int architecture_of_kernels();

// out[i]: between -largest and largest, evenly; follows from `seed` and i alone.
template <typename T>
void scatter(cudaStream_t stream, std::size_t count, unsigned seed, float largest, T* out);

// apart[0] = the largest |left[i] - right[i]|, or infinity if one of them is NaN; apart[1] = the largest
// |left[i]|. REQUIRES: both were 0.
template <typename T>
void compare(cudaStream_t stream, std::size_t count, const T* left, const T* right, float* apart);

}  // namespace dtrun::worker::cuda
