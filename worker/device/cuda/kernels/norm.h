// Layer normalisation of rows, alone and together with the residual addition in front of it. elementwise.h
// has the rules for all kernels.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstddef>

namespace dtrun::worker::cuda {

// in, out: [rows][width], may be the same memory; weight, bias: [width], in the flat parameters. Overwrites
// moments [rows][mean, 1 / sqrt(variance + epsilon)], which backward reads.
template <typename T>
void layer_norm(cudaStream_t stream, std::size_t rows, std::size_t width, float epsilon, const T* in,
                const float* weight, const float* bias, float* moments, T* out);

// sum = left + right, rounded to T; out = layer_norm(sum). All [rows][width]; `sum` and `out` overlap neither
// each other, but each may be `left` or `right`.
template <typename T>
void residual_layer_norm(cudaStream_t stream, std::size_t rows, std::size_t width, float epsilon,
                         const T* left, const T* right, const float* weight, const float* bias, T* sum,
                         float* moments, T* out);

// `in`: the input of layer_norm, or the `sum` of residual_layer_norm. in_gradient: [rows][width], null if not
// wanted; may be `out_gradient` if add is false. weight_gradient, bias_gradient: [width] of the flat
// gradient; `add_parameters` applies to these two. `workspace`: layer_norm_backward_workspace() floats,
// 16-byte aligned, overwritten.
template <typename T>
void layer_norm_backward(cudaStream_t stream, std::size_t rows, std::size_t width, const T* in,
                         const float* weight, const float* moments, const T* out_gradient, bool add,
                         T* in_gradient, bool add_parameters, float* weight_gradient, float* bias_gradient,
                         float* workspace);
std::size_t layer_norm_backward_workspace(std::size_t rows, std::size_t width);

}  // namespace dtrun::worker::cuda
