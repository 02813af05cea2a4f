// Convolutions by cuDNN: images NCHW, sums in fp32; the caller adds biases.
#pragma once

#include <cstdint>
#include <optional>

#include "proto/core/status.h"
#include "worker/device/cuda/cudnn/plan.h"

namespace dtrun::worker::cuda {

struct ConvSizes {
  std::int64_t batch, in_channels, height, width, out_channels, kernel, stride = 1, padding = 0;

  std::int64_t out_height() const { return (height + 2 * padding - kernel) / stride + 1; }
  std::int64_t out_width() const { return (width + 2 * padding - kernel) / stride + 1; }
};

enum class ConvType {
  kFp32,  // matmuls in full fp32 too: no TF32
  kBf16,  // all tensors are bf16, also the weight's gradient, which cuDNN does not write as fp32
};

// The graphs for one shape; used by one thread at a time.
class ConvGraphs {
 public:
  // A first layer needs no input gradient. Not ok if cuDNN has no plan for the shape on this GPU that gives
  // the same bits each time; the message gives the reason.
  static Result<ConvGraphs> plan(CudnnPlanner& planner, const ConvSizes& shape, ConvType type,
                                 bool with_input_gradient = true);

  // All memory is the device's, dense and aligned to 16 bytes: x [batch, in_channels, height, width], weight
  // [out_channels, in_channels, kernel, kernel], y [batch, out_channels, out_height, out_width], gradients
  // likewise. Outputs are overwritten. Enqueued on the handle's stream. `workspace`: workspace_size() bytes.
  void forward(cudnnHandle_t handle, const void* x, const void* weight, void* y, void* workspace) const;
  // REQUIRES: plan() had with_input_gradient.
  void input_gradient(cudnnHandle_t handle, const void* dy, const void* weight, void* dx,
                      void* workspace) const;
  void weight_gradient(cudnnHandle_t handle, const void* x, const void* dy, void* d_weight,
                       void* workspace) const;

  std::int64_t workspace_size() const;  // enough for each of the three
  const CudnnPlan& forward_plan() const { return forward_; }
  const CudnnPlan& input_gradient_plan() const { return *input_gradient_; }  // REQUIRES: planned with it
  const CudnnPlan& weight_gradient_plan() const { return weight_gradient_; }

 private:
  ConvGraphs(CudnnPlan forward, std::optional<CudnnPlan> input_gradient, CudnnPlan weight_gradient)
      : forward_(std::move(forward)),
        input_gradient_(std::move(input_gradient)),
        weight_gradient_(std::move(weight_gradient)) {}

  CudnnPlan forward_;
  std::optional<CudnnPlan> input_gradient_;
  CudnnPlan weight_gradient_;
};

}  // namespace dtrun::worker::cuda
