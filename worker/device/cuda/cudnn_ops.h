// The operations that cuDNN computes for a lane: attention in bf16, and convolutions. Implemented by
// cudnn/ops.cc; in a build without cuDNN's header cudnn_unavailable.cc takes its place.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <string>

#include "proto/core/status.h"
#include "worker/device/cuda/kernels/attention.h"
#include "worker/device/cuda/kernels/images.h"

namespace dtrun::worker::cuda {

// Belongs to one lane; used by one thread at a time. Memory is as in the kernels of the same names
// (kernels/attention.h, kernels/images.h), and 16-byte aligned; `workspace`: workspace() bytes that only this
// stream uses. All functions but plan() enqueue, and throw WorkerError with EX_OSERR if cuDNN fails.
// REQUIRES: shapes were planned.
class CudnnOps {
 public:
  virtual ~CudnnOps() = default;

  // Not ok if cuDNN has no plan for this shape that gives the same bits each time; the message gives the
  // reason. Slow: up to a second if no plan is stored.
  virtual Status plan(const AttentionShape& shape) = 0;
  virtual std::size_t workspace(const AttentionShape& shape) const = 0;
  virtual void attention(cudaStream_t on, const AttentionShape& shape, const void* qkv, void* out,
                         float* statistics, void* workspace) = 0;
  virtual void attention_backward(cudaStream_t on, const AttentionShape& shape, const void* qkv,
                                  const void* out, const void* out_gradient, const float* statistics,
                                  void* qkv_gradient, void* workspace) = 0;

  // The same for convolutions. The caller does biases and ReLU; outputs are overwritten. The weight's
  // gradient has the type of the other tensors.
  virtual Status plan(const ConvShape& shape, bool bf16, bool with_input_gradient) = 0;
  virtual std::size_t workspace(const ConvShape& shape) const = 0;
  virtual void convolve(cudaStream_t on, const ConvShape& shape, const void* in, const void* weight,
                        void* out, void* workspace) = 0;
  // REQUIRES: plan() had with_input_gradient.
  virtual void convolve_backward_input(cudaStream_t on, const ConvShape& shape, const void* weight,
                                       const void* out_gradient, void* in_gradient, void* workspace) = 0;
  virtual void convolve_backward_weight(cudaStream_t on, const ConvShape& shape, const void* in,
                                        const void* out_gradient, void* weight_gradient, void* workspace) = 0;

  // Every plan, for the next start; "" if there is none.
  virtual std::string stored() const = 0;
};

// The operations on GPU number `gpu`, the current one. `stored`: stored() of an earlier start; another text
// counts as "". Null if there is no cuDNN: why_no_cudnn_ops() gives the reason.
std::unique_ptr<CudnnOps> make_cudnn_ops(int gpu, const std::string& stored);
const std::string& why_no_cudnn_ops();

// "9.19.0", or "" if there is no cuDNN.
std::string cudnn_version();

}  // namespace dtrun::worker::cuda
