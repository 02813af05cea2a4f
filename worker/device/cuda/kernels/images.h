// Convolution and pooling of images [sample][channel][y][x]: the reference, and the fallback where cuDNN
// cannot run. elementwise.h has the rules for all kernels.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <compare>
#include <cstddef>

#include "worker/core/window.h"

namespace dtrun::worker::cuda {

// REQUIRES: kernel <= height and width with their padding.
struct ConvShape {
  int samples = 0;
  int in_channels = 0, out_channels = 0;
  int height = 0, width = 0;    // of the input
  int kernel = 0;               // square
  int stride = 1, padding = 0;  // padding: zeros on each side
  int out_height() const { return window_places(height, kernel, stride, padding); }
  int out_width() const { return window_places(width, kernel, stride, padding); }
  auto operator<=>(const ConvShape&) const = default;
};

// weight: [out][in][kernel][kernel] as T, any alignment; bias: [out] of the flat parameters, or null. relu:
// applied to the result, keeps NaN.
template <typename T>
void conv2d(cudaStream_t stream, const ConvShape& shape, const T* in, const T* weight, const float* bias,
            bool relu, T* out);
template <typename T>
void conv2d_backward_input(cudaStream_t stream, const ConvShape& shape, const T* weight,
                           const T* out_gradient, bool add, T* in_gradient);
// weight_gradient, bias_gradient, which may be null: parts of the flat gradient; `add` applies to both.
// Samples are summed in blocks, then the blocks in order. `workspace`: conv2d_backward_parameters_workspace()
// floats, overwritten.
template <typename T>
void conv2d_backward_parameters(cudaStream_t stream, const ConvShape& shape, const T* in,
                                const T* out_gradient, bool add, float* weight_gradient, float* bias_gradient,
                                float* workspace);
std::size_t conv2d_backward_parameters_workspace(const ConvShape& shape);

// The parts of conv2d() and conv2d_backward_parameters() beside a library's convolution.
// out[sample][o][y][x] += bias[o] unless it is null, then `relu`.
template <typename T>
void conv2d_bias(cudaStream_t stream, const ConvShape& shape, const float* bias, bool relu, T* out);
// `workspace`: conv2d_backward_bias_workspace() floats, overwritten.
template <typename T>
void conv2d_backward_bias(cudaStream_t stream, const ConvShape& shape, const T* out_gradient, bool add,
                          float* bias_gradient, float* workspace);
std::size_t conv2d_backward_bias_workspace(const ConvShape& shape);

// Rows and columns that fill no window are dropped; padding is never the largest. REQUIRES: padding <=
// kernel / 2.
struct PoolShape {
  int samples = 0, channels = 0;
  int height = 0, width = 0;  // of the input
  int kernel = 0, stride = kernel, padding = 0;
  int out_height() const { return window_places(height, kernel, stride, padding); }
  int out_width() const { return window_places(width, kernel, stride, padding); }
};

template <typename T>
void max_pool(cudaStream_t stream, const PoolShape& shape, const T* in, T* out);
// The gradient of a window goes to the first of its largest elements, row by row; an element gets those of
// all its windows in their order, which may be none. `in`: the input of max_pool(). in_gradient must overlap
// no other argument.
template <typename T>
void max_pool_backward(cudaStream_t stream, const PoolShape& shape, const T* in, const T* out_gradient,
                       bool add, T* in_gradient);

// out[p] = the mean of plane p of `pixels` elements. REQUIRES: planes < 2^31.
template <typename T>
void average(cudaStream_t stream, std::size_t planes, std::size_t pixels, const T* in, T* out);
template <typename T>
void average_backward(cudaStream_t stream, std::size_t planes, std::size_t pixels, const T* out_gradient,
                      bool add, T* in_gradient);

}  // namespace dtrun::worker::cuda
