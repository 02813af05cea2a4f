// What cuDNN computes for a lane, as a lane asks for it: attention in bf16, and convolutions. cudnn/ops.cc
// has it; where the build lacks cuDNN's header, cudnn_unavailable.cc has none.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <string>

#include "proto/core/status.h"
#include "worker/device/cuda/kernels/attention.h"
#include "worker/device/cuda/kernels/images.h"

namespace dtrun::worker::cuda {

// One lane's; used by one thread at a time. Shapes must have been planned. Memory is as the kernels of the
// same name have it (kernels/attention.h, kernels/images.h), and begins on 16 bytes; `workspace`: so many
// bytes that are the stream's own. All but planning enqueues; throws WorkerError with EX_OSERR where cuDNN
// fails.
class CudnnOps {
 public:
  virtual ~CudnnOps() = default;

  // Not ok: cuDNN has nothing for this shape that gives the same bits each time; the message says why. Slow:
  // up to a second where no plan is stored.
  virtual Status plan(const AttentionShape& shape) = 0;
  virtual std::size_t workspace(const AttentionShape& shape) const = 0;
  virtual void attention(cudaStream_t on, const AttentionShape& shape, const void* qkv, void* out,
                         float* statistics, void* workspace) = 0;
  virtual void attention_backward(cudaStream_t on, const AttentionShape& shape, const void* qkv,
                                  const void* out, const void* out_gradient, const float* statistics,
                                  void* qkv_gradient, void* workspace) = 0;

  // Likewise. Biases and ReLU are the caller's; everything is overwritten. The weight's gradient has the
  // type of the rest.
  virtual Status plan(const ConvShape& shape, bool bf16, bool with_input_gradient) = 0;
  virtual std::size_t workspace(const ConvShape& shape) const = 0;
  virtual void convolve(cudaStream_t on, const ConvShape& shape, const void* in, const void* weight,
                        void* out, void* workspace) = 0;
  // REQUIRES: planned with it.
  virtual void convolve_backward_input(cudaStream_t on, const ConvShape& shape, const void* weight,
                                       const void* out_gradient, void* in_gradient, void* workspace) = 0;
  virtual void convolve_backward_weight(cudaStream_t on, const ConvShape& shape, const void* in,
                                        const void* out_gradient, void* weight_gradient, void* workspace) = 0;

  // Every plan, for the next start; "" if there is none.
  virtual std::string stored() const = 0;
};

// For GPU number `gpu`, the current one. `stored`: an earlier start's; anything else is as "". Null where
// there is no cuDNN: why_no_cudnn_ops() says why.
std::unique_ptr<CudnnOps> make_cudnn_ops(int gpu, const std::string& stored);
const std::string& why_no_cudnn_ops();

// "9.19.0", or "" where there is no cuDNN.
std::string cudnn_version();

}  // namespace dtrun::worker::cuda
