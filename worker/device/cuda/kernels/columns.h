// Sums of columns, as gradients of biases and positions are. See elementwise.h for what holds for all
// kernels.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstddef>

namespace dtrun::worker::cuda {

// values[0..rows)[c] += row[c]; values: [rows][width], their rows `stride` elements apart. `row`: T's own
// alignment will do.
template <typename T>
void add_row(cudaStream_t stream, std::size_t rows, std::size_t width, std::size_t stride, const T* row,
             T* values);

// sum[c], of the flat gradient, = or += the sum of in[0..rows)[c]; in: likewise. Blocks of rows are
// summed first, then their sums in order: both follow from the shape. Few wide rows (samples x positions)
// take no workspace. rows = 0 sums nothing: without `add` the sum becomes 0. `workspace`: so many floats,
// overwritten; may be null if that is 0.
template <typename T>
void sum_rows(cudaStream_t stream, std::size_t rows, std::size_t width, std::size_t stride, const T* in,
              bool add, float* sum, float* workspace);
std::size_t sum_rows_workspace(std::size_t rows, std::size_t width);

}  // namespace dtrun::worker::cuda
