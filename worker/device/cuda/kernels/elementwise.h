// Operations on each element alone. Activations are T: float or __nv_bfloat16; arithmetic is fp32, rounded to
// T (to nearest even) where a result is stored.
//
// For all kernels of this folder: pointers name device memory; a call enqueues on `stream` and returns.
// A launch's error stays in cudaGetLastError(). Results depend on the arguments alone: never on the GPU's
// size, on timing or on other streams. Activations are 16-byte aligned and may have any width; vectors of
// floats that belong to the flat parameters or gradients need 4 bytes, and are faster on 16. "add": the
// result is added to the output's old value, else it overwrites. Counts and rows of 0 do nothing.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstddef>

#include "worker/core/philox.h"

namespace dtrun::worker::cuda {

// `out` may be `in`. NaN stays NaN.
template <typename T>
void relu(cudaStream_t stream, std::size_t count, const T* in, T* out);
// `out`: the result of relu(). `in_gradient` may be `out_gradient` if add is false.
template <typename T>
void relu_backward(cudaStream_t stream, std::size_t count, const T* out, const T* out_gradient, bool add,
                   T* in_gradient);

// The tanh approximation: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). `out` may be `in`.
template <typename T>
void gelu(cudaStream_t stream, std::size_t count, const T* in, T* out);
// `in`: the input of gelu(). `in_gradient` may be `out_gradient` if add is false.
template <typename T>
void gelu_backward(cudaStream_t stream, std::size_t count, const T* in, const T* out_gradient, bool add,
                   T* in_gradient);

// out[i] = left[i] + right[i]; all may be the same memory.
template <typename T>
void add(cudaStream_t stream, std::size_t count, const T* left, const T* right, T* out);
// to[i] += from[i].
template <typename T>
void accumulate(cudaStream_t stream, std::size_t count, const T* from, T* to);

// out = in / (1 - probability) where the element is kept (worker/core/dropout.h), else 0: the same elements
// as on the CPU. Element i of the microbatch uses number i of the stream of random numbers *words. `out` may
// be `in` if add is false. REQUIRES: count <= 2^34.
template <typename T>
void dropout(cudaStream_t stream, std::size_t count, const RandomStream::Words* words, float probability,
             const T* in, bool add, T* out);

// The nearest bf16, of two equally near ones the even one; NaN stays NaN. Subnormal numbers are kept, unlike
// on the CPU (worker/device/cpu/planned/kernels.h). `in` needs an alignment of 4 bytes, `out` of 2.
void to_bf16(cudaStream_t stream, std::size_t count, const float* in, __nv_bfloat16* out);

// out[i] = value. `out` needs only T's alignment.
template <typename T>
void fill(cudaStream_t stream, std::size_t count, float value, T* out);

}  // namespace dtrun::worker::cuda
