// Sums of columns, for the gradients of biases and positions. elementwise.h has the rules for all kernels.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstddef>

namespace dtrun::worker::cuda {

// values[0..rows)[c] += row[c]; values: [rows][width], their rows `stride` elements apart. `row` needs only
// T's alignment.
template <typename T>
void add_row(cudaStream_t stream, std::size_t rows, std::size_t width, std::size_t stride, const T* row,
             T* values);

// sum[c], in the flat gradient, = or += the sum of in[0..rows)[c]; `in` is laid out as `values` above. Blocks
// of rows are summed first, then their sums in order: both follow from the shape. Few wide rows (samples x
// positions) take no workspace. rows = 0 sums nothing: without `add` the sum becomes 0. `workspace`:
// sum_rows_workspace() floats, overwritten; may be null if that is 0.
template <typename T>
void sum_rows(cudaStream_t stream, std::size_t rows, std::size_t width, std::size_t stride, const T* in,
              bool add, float* sum, float* workspace);
std::size_t sum_rows_workspace(std::size_t rows, std::size_t width);

}  // namespace dtrun::worker::cuda
