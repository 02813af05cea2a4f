// The convolutions of a lane: each shape is computed by cuDNN, or by the own kernels. The own kernels always
// do biases and ReLU.
#pragma once

#include <cstddef>
#include <set>
#include <string>

#include "worker/device/cuda/cudnn_ops.h"
#include "worker/device/cuda/kernels/images.h"
#include "worker/device/cuda/steps.h"
#include "worker/device/cuda/trial.h"

namespace dtrun::worker::cuda {

ConvShape convolution_of(const ImageShape& image);

// T: float or __nv_bfloat16. Memory is as in kernels/images.h, errors as in CudnnOps.
template <typename T>
class ConvolutionOps {
 public:
  // Makes cuDNN compute this shape from now on, if cuDNN has plans for it and its results agree with those of
  // the own kernels; except for steps that add to old values, whose weight or gradient is not 16-byte
  // aligned, or that compute a weight's gradient in bf16, which cuDNN would round. Returns "", or the reason
  // against it. REQUIRES: `cudnn` outlives this.
  std::string use(CudnnOps& cudnn, const ConvShape& shape, bool with_input_gradient, Trial& trial);

  // Bytes.
  std::size_t workspace(const Convolve& work) const;
  std::size_t workspace(const ConvolveInGradient& work) const;
  std::size_t workspace(const ConvolveWeightGradient& work) const;

  void forward(cudaStream_t on, const Convolve& work, const T* in, const T* weight, const float* bias, T* out,
               float* workspace) const;
  void backward_input(cudaStream_t on, const ConvolveInGradient& work, const T* weight, const T* out_gradient,
                      T* in_gradient, float* workspace) const;
  void backward_parameters(cudaStream_t on, const ConvolveWeightGradient& work, const T* in,
                           const T* out_gradient, float* weight_gradient, float* bias_gradient,
                           float* workspace) const;

 private:
  std::string try_out(const ConvShape& shape, bool with_input_gradient, Trial& trial) const;
  bool is_cudnns(const Convolve& work) const;
  bool is_cudnns(const ConvolveInGradient& work) const;
  bool is_cudnns(const ConvolveWeightGradient& work) const;
  bool is_cudnns(const ConvShape& shape) const { return cudnns_.contains(shape); }

  CudnnOps* cudnn_ = nullptr;
  std::set<ConvShape> cudnns_;
};

}  // namespace dtrun::worker::cuda
