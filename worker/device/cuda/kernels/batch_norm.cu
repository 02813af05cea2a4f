// A block computes a channel; its threads take every kThreads-th value of all samples.
#include "worker/device/cuda/kernels/batch_norm.h"
#include "worker/device/cuda/kernels/pack.cuh"

namespace dtrun::worker::cuda {
namespace {

constexpr int kThreads = 256;

// The sum over the block's threads, for all of them. Called by all, with `sums` of kThreads floats.
__device__ float block_sum(float value, float* sums) {
  __syncthreads();  // all have read the last sum
  sums[threadIdx.x] = value;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < half) sums[threadIdx.x] += sums[threadIdx.x + half];
  }
  __syncthreads();
  return sums[0];
}

// Calls f(offset) for the thread's values of the channel in samples begin to end.
template <typename F>
__device__ void each_value(const BatchShape& s, std::size_t begin, std::size_t end, const F& f) {
#pragma unroll 1
  for (std::size_t n = begin; n < end; ++n) {
    const std::size_t plane = (n * s.channels + blockIdx.x) * s.pixels;
#pragma unroll 1
    for (std::size_t i = threadIdx.x; i < s.pixels; i += kThreads) f(plane + i);
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    batch_norm_kernel(BatchShape s, const std::uint32_t* real, bool training, float epsilon, const T* in,
                      const float* weight, const float* bias, const float* running_mean,
                      const float* running_variance, float* moments, T* out) {
  wait_for_previous();
  SHARED_ARRAY(float, sums, kThreads);
  const unsigned c = blockIdx.x;
  float mean = running_mean[c], variance = running_variance[c];
  if (training) {
    const auto count = static_cast<float>(*real * s.pixels);
    float sum = 0;
    each_value(s, 0, *real, [&](std::size_t at) { sum += to_float(in[at]); });
    mean = block_sum(sum, sums) / count;
    float squares = 0;
    each_value(s, 0, *real, [&](std::size_t at) {
      const float apart = to_float(in[at]) - mean;
      squares += apart * apart;
    });
    variance = block_sum(squares, sums) / count;
  }
  const float deviation = 1.0f / sqrtf(variance + epsilon), scale = deviation * weight[c], offset = bias[c];
  if (threadIdx.x == 0) moments[3 * c] = mean, moments[3 * c + 1] = deviation, moments[3 * c + 2] = variance;
  each_value(s, 0, s.samples,
             [&](std::size_t at) { out[at] = from_float<T>((to_float(in[at]) - mean) * scale + offset); });
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    batch_norm_backward_kernel(BatchShape s, const std::uint32_t* real, const T* in, const float* weight,
                               const float* running_mean, const float* moments, const T* out_gradient,
                               bool add, T* in_gradient, bool add_parameters, float* weight_gradient,
                               float* bias_gradient, float* sums_out, const float* means) {
  wait_for_previous();
  SHARED_ARRAY(float, sums, kThreads);
  const unsigned c = blockIdx.x;
  const float mean = moments[3 * c], scale = moments[3 * c + 1];
  float own = 0, own_x = 0;
  each_value(s, 0, *real, [&](std::size_t at) {
    const float d = to_float(out_gradient[at]);
    own += d, own_x += d * ((to_float(in[at]) - mean) * scale);
  });
  const float d_bias = block_sum(own, sums), d_weight = block_sum(own_x, sums);
  if (threadIdx.x == 0) {
    const float shift = mean - running_mean[c], samples = static_cast<float>(*real);
    bias_gradient[c] = add_parameters ? bias_gradient[c] + d_bias : d_bias;
    weight_gradient[c] = add_parameters ? weight_gradient[c] + d_weight : d_weight;
    sums_out[c] = samples * shift;
    sums_out[s.channels + c] = samples * (moments[3 * c + 2] + shift * shift);
  }
  if (in_gradient == nullptr) return;
  const auto count = static_cast<float>(*real * s.pixels);
  const float slope = weight[c] * scale, mean_d = means != nullptr ? means[c] : d_bias / count,
              mean_dx = means != nullptr ? means[s.channels + c] : d_weight / count;
  each_value(s, 0, *real, [&](std::size_t at) {
    const float x = (to_float(in[at]) - mean) * scale;
    const float part = slope * (to_float(out_gradient[at]) - mean_d - x * mean_dx);
    in_gradient[at] = from_float<T>(add ? to_float(in_gradient[at]) + part : part);
  });
  if (!add) each_value(s, *real, s.samples, [&](std::size_t at) { in_gradient[at] = from_float<T>(0.0f); });
}

}  // namespace

template <typename T>
void batch_norm(cudaStream_t stream, const BatchShape& shape, const std::uint32_t* real, bool training,
                float epsilon, const T* in, const float* weight, const float* bias, const float* running_mean,
                const float* running_variance, float* moments, T* out) {
  if (shape.channels == 0) return;
  launch(batch_norm_kernel<T>, static_cast<unsigned>(shape.channels), kThreads, 0, stream, shape, real,
         training, epsilon, in, weight, bias, running_mean, running_variance, moments, out);
}

template <typename T>
void batch_norm_backward(cudaStream_t stream, const BatchShape& shape, const std::uint32_t* real, const T* in,
                         const float* weight, const float* running_mean, const float* moments,
                         const T* out_gradient, bool add, T* in_gradient, bool add_parameters,
                         float* weight_gradient, float* bias_gradient, float* sums, const float* means) {
  if (shape.channels == 0) return;
  launch(batch_norm_backward_kernel<T>, static_cast<unsigned>(shape.channels), kThreads, 0, stream, shape,
         real, in, weight, running_mean, moments, out_gradient, add, in_gradient, add_parameters,
         weight_gradient, bias_gradient, sums, means);
}

#define DTRUN_BATCH_NORM(T)                                                                              \
  template void batch_norm(cudaStream_t, const BatchShape&, const std::uint32_t*, bool, float, const T*, \
                           const float*, const float*, const float*, const float*, float*, T*);          \
  template void batch_norm_backward(cudaStream_t, const BatchShape&, const std::uint32_t*, const T*,     \
                                    const float*, const float*, const float*, const T*, bool, T*, bool,  \
                                    float*, float*, float*, const float*);
DTRUN_BATCH_NORM(float)
DTRUN_BATCH_NORM(__nv_bfloat16)

}  // namespace dtrun::worker::cuda
