// A thread computes one pixel of several channels, so that each value that it reads of an image serves all of
// them; a sum runs over channels, then rows, then columns.
#include <algorithm>

#include "worker/device/cuda/kernels/images.h"
#include "worker/device/cuda/kernels/pack.cuh"
#include "worker/device/cuda/kernels/partials.h"

namespace dtrun::worker::cuda {
namespace {

constexpr int kThreads = 128, kChannels = 8;

__device__ inline int least(int a, int b) { return a < b ? a : b; }
__device__ inline int most(int a, int b) { return a > b ? a : b; }

// Shapes with the size of the output as a number, which kernels can read.
struct Conv : ConvShape {
  int out_rows, out_columns;
  explicit Conv(const ConvShape& shape)
      : ConvShape(shape), out_rows(shape.out_height()), out_columns(shape.out_width()) {}
};
struct Pool : PoolShape {
  int out_rows, out_columns;
  explicit Pool(const PoolShape& shape)
      : PoolShape(shape), out_rows(shape.out_height()), out_columns(shape.out_width()) {}
};

struct Pixel {
  int sample, y, x;
};
// The place of pixel number `at` among the pixels of all samples.
__device__ inline Pixel pixel(std::size_t at, int height, int width) {
  const std::size_t rows = at / width;
  return {static_cast<int>(rows / height), static_cast<int>(rows % height), static_cast<int>(at % width)};
}
// The offset of row y of an image's channel.
__device__ inline std::size_t row_of(int sample, int channels, int channel, int height, int width, int y) {
  return ((static_cast<std::size_t>(sample) * channels + channel) * height + y) * width;
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    conv2d_kernel(Conv s, std::size_t pixels, const T* in, const T* weight, const float* bias, bool relu,
                  T* out) {
  wait_for_previous();
  const std::size_t at = static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= pixels) return;
  const Pixel p = pixel(at, s.out_rows, s.out_columns);
  const int first = blockIdx.y * kChannels, left = s.out_channels - first,
            taps = s.in_channels * s.kernel * s.kernel;
  float sums[kChannels];
#pragma unroll
  for (int o = 0; o < kChannels; ++o) sums[o] = bias != nullptr && o < left ? bias[first + o] : 0.0f;
  const int top = p.y * s.stride - s.padding, start = p.x * s.stride - s.padding;
  const int ky_begin = most(0, -top), ky_end = least(s.kernel, s.height - top);
  const int kx_begin = most(0, -start), kx_end = least(s.kernel, s.width - start);
  for (int c = 0; c < s.in_channels; ++c)
    for (int ky = ky_begin; ky < ky_end; ++ky) {
      const T* const row = in + row_of(p.sample, s.in_channels, c, s.height, s.width, top + ky);
      const T* const w = weight + static_cast<std::size_t>(first) * taps + (c * s.kernel + ky) * s.kernel;
      for (int kx = kx_begin; kx < kx_end; ++kx) {
        const float value = to_float(row[start + kx]);
#pragma unroll
        for (int o = 0; o < kChannels; ++o)
          if (o < left) sums[o] += to_float(w[static_cast<std::size_t>(o) * taps + kx]) * value;
      }
    }
#pragma unroll
  for (int o = 0; o < kChannels; ++o)
    if (o < left)
      out[row_of(p.sample, s.out_channels, first + o, s.out_rows, s.out_columns, p.y) + p.x] =
          from_float<T>(relu && sums[o] < 0 ? 0.0f : sums[o]);
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    conv2d_backward_input_kernel(Conv s, std::size_t pixels, const T* weight, const T* out_gradient, bool add,
                                 T* in_gradient) {
  wait_for_previous();
  const std::size_t at = static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= pixels) return;
  const Pixel p = pixel(at, s.height, s.width);
  const int first = blockIdx.y * kChannels, left = s.in_channels - first, square = s.kernel * s.kernel;
  // Output pixels ((y - ky) / stride, (x - kx) / stride), where these are whole, have read this one.
  const int y = p.y + s.padding, x = p.x + s.padding;
  const int ky_begin = most(y % s.stride, y - (s.out_rows - 1) * s.stride), ky_end = least(s.kernel, y + 1);
  const int kx_begin = most(x % s.stride, x - (s.out_columns - 1) * s.stride),
            kx_end = least(s.kernel, x + 1);
  float sums[kChannels] = {};
  for (int o = 0; o < s.out_channels; ++o)
    for (int ky = ky_begin; ky < ky_end; ky += s.stride) {
      const T* from = out_gradient +
                      row_of(p.sample, s.out_channels, o, s.out_rows, s.out_columns, (y - ky) / s.stride) +
                      (x - kx_begin) / s.stride;
      for (int kx = kx_begin; kx < kx_end; kx += s.stride, --from) {
        const float value = to_float(*from);
        const T* const w =
            weight + (static_cast<std::size_t>(o) * s.in_channels + first) * square + ky * s.kernel + kx;
#pragma unroll
        for (int c = 0; c < kChannels; ++c)
          if (c < left) sums[c] += to_float(w[c * square]) * value;
      }
    }
#pragma unroll
  for (int c = 0; c < kChannels; ++c) {
    if (c >= left) continue;
    T* const to = in_gradient + row_of(p.sample, s.in_channels, first + c, s.height, s.width, p.y) + p.x;
    *to = from_float<T>(add ? to_float(*to) + sums[c] : sums[c]);
  }
}

// The first place, of places `stride` apart, that is `way` or further.
__device__ inline int first_place(int way, int stride) { return way <= 0 ? 0 : (way + stride - 1) / stride; }

constexpr int kMostParts = 32;      // of the samples, summed apart
constexpr int kWeightChannels = 4;  // output channels of a thread

// A block handles part blockIdx.z of the samples, for kWeightChannels output channels. A thread computes one
// weight of each channel, and goes through the pixels; behind the weights comes the bias, whose input is 1.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    conv2d_backward_parameters_kernel(Conv s, int samples_a_part, const T* in, const T* out_gradient,
                                      float* partials) {
  wait_for_previous();
  const int taps = s.in_channels * s.kernel * s.kernel, tap = blockIdx.x * kThreads + threadIdx.x;
  if (tap > taps) return;
  const bool bias = tap == taps;
  const int c = tap / (s.kernel * s.kernel), ky = tap / s.kernel % s.kernel, kx = tap % s.kernel;
  const int first = blockIdx.y * kWeightChannels, left = s.out_channels - first;
  const int begin = blockIdx.z * samples_a_part, end = least(begin + samples_a_part, s.samples);
  const int height = s.out_rows, width = s.out_columns;
  const std::size_t channel = static_cast<std::size_t>(height) * width;
  // Of the outputs, those whose window has this tap inside the image.
  const int up = s.padding - ky, back = s.padding - kx;
  const int y_begin = bias ? 0 : first_place(up, s.stride),
            y_end = bias ? height : least(height, first_place(s.height + up, s.stride));
  const int x_begin = bias ? 0 : first_place(back, s.stride),
            x_end = bias ? width : least(width, first_place(s.width + back, s.stride));
  float sums[kWeightChannels] = {};
  for (int n = begin; n < end; ++n)
    for (int y = y_begin; y < y_end; ++y) {
      const T* const row = bias ? in : in + row_of(n, s.in_channels, c, s.height, s.width, y * s.stride - up);
      const T* const d = out_gradient + row_of(n, s.out_channels, first, height, width, y);
      for (int x = x_begin; x < x_end; ++x) {
        const float value = bias ? 1.0f : to_float(row[x * s.stride - back]);
#pragma unroll
        for (int o = 0; o < kWeightChannels; ++o)
          if (o < left) sums[o] += to_float(d[o * channel + x]) * value;
      }
    }
  float* const part = partials + static_cast<std::size_t>(blockIdx.z) * s.out_channels * (taps + 1);
  for (int o = 0; o < kWeightChannels; ++o) {
    if (o >= left) continue;
    if (bias)
      part[static_cast<std::size_t>(s.out_channels) * taps + first + o] = sums[o];
    else
      part[static_cast<std::size_t>(first + o) * taps + tap] = sums[o];
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    conv2d_bias_kernel(std::size_t count, std::size_t pixels, int channels, const float* bias, bool relu,
                       T* out) {
  wait_for_previous();
  const std::size_t at = static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= count) return;
  const float value = to_float(out[at]) + (bias == nullptr ? 0.0f : bias[at / pixels % channels]);
  out[at] = from_float<T>(relu && value < 0 ? 0.0f : value);
}

// A warp sums channel blockIdx.x of part blockIdx.y of the samples.
template <typename T>
__global__ void __launch_bounds__(kWarp)
    conv2d_backward_bias_kernel(int samples, int channels, std::size_t pixels, int samples_a_part,
                                const T* out_gradient, float* partials) {
  wait_for_previous();
  const int begin = blockIdx.y * samples_a_part, end = least(begin + samples_a_part, samples);
  float sum = 0;
  for (int n = begin; n < end; ++n) {
    const T* const plane = out_gradient + (static_cast<std::size_t>(n) * channels + blockIdx.x) * pixels;
    for (std::size_t i = threadIdx.x; i < pixels; i += kWarp) sum += to_float(plane[i]);
  }
  sum = warp_sum(sum);
  if (threadIdx.x == 0) partials[static_cast<std::size_t>(blockIdx.y) * channels + blockIdx.x] = sum;
}

// The first of the largest elements of the window whose corner is (top, start), in its plane.
template <typename T>
__device__ int largest_of(const Pool& s, const T* plane, int top, int start) {
  const int bottom = least(s.height, top + s.kernel), end = least(s.width, start + s.kernel);
  top = most(0, top), start = most(0, start);
  int found = top * s.width + start;
#pragma unroll 1
  for (int row = top; row < bottom; ++row)
#pragma unroll 1
    for (int at = row * s.width + start; at < row * s.width + end; ++at)
      if (to_float(plane[at]) > to_float(plane[found])) found = at;
  return found;
}

template <typename T>
__global__ void __launch_bounds__(kThreads) max_pool_kernel(Pool s, std::size_t count, const T* in, T* out) {
  wait_for_previous();
  const std::size_t at = static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= count) return;
  const Pixel p = pixel(at, s.out_rows, s.out_columns);  // p.sample counts samples and channels
  const T* const plane = in + row_of(p.sample, 1, 0, s.height, s.width, 0);
  out[at] = plane[largest_of(s, plane, p.y * s.stride - s.padding, p.x * s.stride - s.padding)];
}

// A thread computes one element of the input, which belongs to several windows, to one, or to none.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    max_pool_backward_kernel(Pool s, std::size_t count, const T* in, const T* out_gradient, bool add,
                             T* in_gradient) {
  wait_for_previous();
  const std::size_t at = static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= count) return;
  const Pixel p = pixel(at, s.height, s.width);
  const T* const plane = in + row_of(p.sample, 1, 0, s.height, s.width, 0);
  const T* const d = out_gradient + row_of(p.sample, 1, 0, s.out_rows, s.out_columns, 0);
  const int own = p.y * s.width + p.x;
  // The last windows that begin at or in front of it, and those before them that reach it.
  const int last_y = least(s.out_rows - 1, (p.y + s.padding) / s.stride),
            last_x = least(s.out_columns - 1, (p.x + s.padding) / s.stride);
  float value = 0;
#pragma unroll 1
  for (int y = first_place(p.y + s.padding - s.kernel + 1, s.stride); y <= last_y; ++y)
#pragma unroll 1
    for (int x = first_place(p.x + s.padding - s.kernel + 1, s.stride); x <= last_x; ++x)
      if (largest_of(s, plane, y * s.stride - s.padding, x * s.stride - s.padding) == own)
        value += to_float(d[y * s.out_columns + x]);
  in_gradient[at] = from_float<T>(add ? to_float(in_gradient[at]) + value : value);
}

// A warp for each plane.
template <typename T>
__global__ void __launch_bounds__(kWarp) average_kernel(std::size_t pixels, const T* in, T* out) {
  wait_for_previous();
  const T* const plane = in + blockIdx.x * pixels;
  float sum = 0;
  for (std::size_t i = threadIdx.x; i < pixels; i += kWarp) sum += to_float(plane[i]);
  sum = warp_sum(sum);
  if (threadIdx.x == 0) out[blockIdx.x] = from_float<T>(sum / static_cast<float>(pixels));
}

template <typename T>
__global__ void __launch_bounds__(kWarp)
    average_backward_kernel(std::size_t pixels, const T* out_gradient, bool add, T* in_gradient) {
  wait_for_previous();
  const float part = to_float(out_gradient[blockIdx.x]) / static_cast<float>(pixels);
  T* const plane = in_gradient + blockIdx.x * pixels;
  for (std::size_t i = threadIdx.x; i < pixels; i += kWarp)
    plane[i] = from_float<T>(add ? to_float(plane[i]) + part : part);
}

int parts_of(const ConvShape& shape) { return std::min(shape.samples, kMostParts); }

}  // namespace

template <typename T>
void conv2d(cudaStream_t stream, const ConvShape& shape, const T* in, const T* weight, const float* bias,
            bool relu, T* out) {
  const std::size_t pixels = static_cast<std::size_t>(shape.samples) * shape.out_height() * shape.out_width();
  if (pixels == 0) return;
  launch(conv2d_kernel<T>, dim3(blocks_of(pixels, kThreads), blocks_of(shape.out_channels, kChannels)),
         kThreads, 0, stream, Conv(shape), pixels, in, weight, bias, relu, out);
}

template <typename T>
void conv2d_backward_input(cudaStream_t stream, const ConvShape& shape, const T* weight,
                           const T* out_gradient, bool add, T* in_gradient) {
  const std::size_t pixels = static_cast<std::size_t>(shape.samples) * shape.height * shape.width;
  if (pixels == 0) return;
  launch(conv2d_backward_input_kernel<T>,
         dim3(blocks_of(pixels, kThreads), blocks_of(shape.in_channels, kChannels)), kThreads, 0, stream,
         Conv(shape), pixels, weight, out_gradient, add, in_gradient);
}

std::size_t conv2d_backward_parameters_workspace(const ConvShape& shape) {
  const std::size_t taps = static_cast<std::size_t>(shape.in_channels) * shape.kernel * shape.kernel;
  return parts_of(shape) * shape.out_channels * (taps + 1);
}

template <typename T>
void conv2d_backward_parameters(cudaStream_t stream, const ConvShape& shape, const T* in,
                                const T* out_gradient, bool add, float* weight_gradient, float* bias_gradient,
                                float* workspace) {
  const int taps = shape.in_channels * shape.kernel * shape.kernel, parts = parts_of(shape);
  if (parts > 0)
    launch(conv2d_backward_parameters_kernel<T>,
           dim3(blocks_of(taps + 1, kThreads), blocks_of(shape.out_channels, kWeightChannels),
                static_cast<unsigned>(parts)),
           kThreads, 0, stream, Conv(shape), (shape.samples + parts - 1) / parts, in, out_gradient,
           workspace);
  sum_partials(stream, parts, workspace, add, weight_gradient,
               static_cast<std::size_t>(shape.out_channels) * taps, bias_gradient, shape.out_channels);
}

template <typename T>
void conv2d_bias(cudaStream_t stream, const ConvShape& shape, const float* bias, bool relu, T* out) {
  const std::size_t pixels = static_cast<std::size_t>(shape.out_height()) * shape.out_width(),
                    count = pixels * shape.samples * shape.out_channels;
  if (count == 0 || (bias == nullptr && !relu)) return;
  launch(conv2d_bias_kernel<T>, blocks_of(count, kThreads), kThreads, 0, stream, count, pixels,
         shape.out_channels, bias, relu, out);
}

std::size_t conv2d_backward_bias_workspace(const ConvShape& shape) {
  return static_cast<std::size_t>(parts_of(shape)) * shape.out_channels;
}

template <typename T>
void conv2d_backward_bias(cudaStream_t stream, const ConvShape& shape, const T* out_gradient, bool add,
                          float* bias_gradient, float* workspace) {
  const int parts = parts_of(shape);
  if (parts > 0)
    launch(conv2d_backward_bias_kernel<T>,
           dim3(static_cast<unsigned>(shape.out_channels), static_cast<unsigned>(parts)), kWarp, 0, stream,
           shape.samples, shape.out_channels,
           static_cast<std::size_t>(shape.out_height()) * shape.out_width(),
           (shape.samples + parts - 1) / parts, out_gradient, workspace);
  sum_partials(stream, parts, workspace, add, bias_gradient, shape.out_channels);
}

template <typename T>
void max_pool(cudaStream_t stream, const PoolShape& shape, const T* in, T* out) {
  const std::size_t count =
      static_cast<std::size_t>(shape.samples) * shape.channels * shape.out_height() * shape.out_width();
  if (count == 0) return;
  launch(max_pool_kernel<T>, blocks_of(count, kThreads), kThreads, 0, stream, Pool(shape), count, in, out);
}

template <typename T>
void max_pool_backward(cudaStream_t stream, const PoolShape& shape, const T* in, const T* out_gradient,
                       bool add, T* in_gradient) {
  const std::size_t count =
      static_cast<std::size_t>(shape.samples) * shape.channels * shape.height * shape.width;
  if (count == 0) return;
  launch(max_pool_backward_kernel<T>, blocks_of(count, kThreads), kThreads, 0, stream, Pool(shape), count, in,
         out_gradient, add, in_gradient);
}

template <typename T>
void average(cudaStream_t stream, std::size_t planes, std::size_t pixels, const T* in, T* out) {
  if (planes == 0) return;
  launch(average_kernel<T>, static_cast<unsigned>(planes), kWarp, 0, stream, pixels, in, out);
}

template <typename T>
void average_backward(cudaStream_t stream, std::size_t planes, std::size_t pixels, const T* out_gradient,
                      bool add, T* in_gradient) {
  if (planes == 0) return;
  launch(average_backward_kernel<T>, static_cast<unsigned>(planes), kWarp, 0, stream, pixels, out_gradient,
         add, in_gradient);
}

#define DTRUN_IMAGES(T)                                                                                      \
  template void conv2d(cudaStream_t, const ConvShape&, const T*, const T*, const float*, bool, T*);          \
  template void conv2d_backward_input(cudaStream_t, const ConvShape&, const T*, const T*, bool, T*);         \
  template void conv2d_backward_parameters(cudaStream_t, const ConvShape&, const T*, const T*, bool, float*, \
                                           float*, float*);                                                  \
  template void conv2d_bias(cudaStream_t, const ConvShape&, const float*, bool, T*);                         \
  template void conv2d_backward_bias(cudaStream_t, const ConvShape&, const T*, bool, float*, float*);        \
  template void max_pool(cudaStream_t, const PoolShape&, const T*, T*);                                      \
  template void max_pool_backward(cudaStream_t, const PoolShape&, const T*, const T*, bool, T*);             \
  template void average(cudaStream_t, std::size_t, std::size_t, const T*, T*);                               \
  template void average_backward(cudaStream_t, std::size_t, std::size_t, const T*, bool, T*);
DTRUN_IMAGES(float)
DTRUN_IMAGES(__nv_bfloat16)

}  // namespace dtrun::worker::cuda
