// Normalisation of each channel over a microbatch. elementwise.h has the rules for all kernels.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace dtrun::worker::cuda {

// Images [samples][channels][pixels], of which the first *real samples count.
struct BatchShape {
  std::size_t samples = 0, channels = 0, pixels = 0;
};

// weight, bias, running_mean, running_variance: [channels], of the flat parameters. Normalises by the moments
// of the real samples, or if not `training` by the running ones. Overwrites moments [channels][mean, 1 /
// sqrt(variance + epsilon), variance], which backward reads.
template <typename T>
void batch_norm(cudaStream_t stream, const BatchShape& shape, const std::uint32_t* real, bool training,
                float epsilon, const T* in, const float* weight, const float* bias, const float* running_mean,
                const float* running_variance, float* moments, T* out);

// in_gradient: null if not wanted; that of a sample which is not real becomes 0. weight_gradient,
// bias_gradient: of the flat gradient; `add_parameters` applies to these two. Overwrites sums [2][channels]
// with the sums over real samples of the means of (x - c) and of (x - c)^2, c being running_mean. `means`
// [2][channels]: of the gradient of `out` and of its product with the normalised values, over all samples
// that were normalised together; null: these.
template <typename T>
void batch_norm_backward(cudaStream_t stream, const BatchShape& shape, const std::uint32_t* real, const T* in,
                         const float* weight, const float* running_mean, const float* moments,
                         const T* out_gradient, bool add, T* in_gradient, bool add_parameters,
                         float* weight_gradient, float* bias_gradient, float* sums,
                         const float* means = nullptr);

}  // namespace dtrun::worker::cuda
