// Weights rounded as an export with --quantize stores them, with the bits of worker/quantize/blocks.h.
// elementwise.h has the rules for all kernels.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstddef>

namespace dtrun::worker::cuda {

// Each 32 columns of a row (its last ones may be fewer) share a scale. in_first: the matrix is stored as
// [columns, rows].
struct BlockedMatrix {
  std::size_t rows = 0, columns = 0;
  bool in_first = false;
  bool four_bits = false;  // q4_0, else q8_0
};

// out = step * scale, in `in`'s layout. What is not finite stays so. `out` is not `in`.
template <typename T>
void round_matrix(cudaStream_t stream, const BlockedMatrix& matrix, const float* in, T* out);

}  // namespace dtrun::worker::cuda
