// Causal self-attention by cuDNN's fused kernels: neither scores nor probabilities are written to memory in
// forward.
#pragma once

#include <cstdint>

#include "proto/core/status.h"
#include "worker/device/cuda/cudnn/plan.h"

namespace dtrun::worker::cuda {

struct AttentionSizes {
  std::int64_t batch, heads, positions, head_size;  // width = heads * head_size

  std::int64_t rows() const { return batch * positions; }
  std::int64_t width() const { return heads * head_size; }
};

// The graphs for one shape. Each lane has its own: used by one thread at a time.
class AttentionGraphs {
 public:
  // Not ok if cuDNN has no plan for this shape on this GPU, or none whose gradients are the same each time;
  // the message gives the reason.
  static Result<AttentionGraphs> plan(CudnnPlanner& planner, const AttentionSizes& shape);

  // All memory is the device's, aligned to 16 bytes. `qkv`: bf16 [rows, 3 * width], each row query, key,
  // value; head h has elements h * head_size … of each. `out`: bf16 [rows, width]. `statistics`: fp32 [batch,
  // heads, positions], the logarithm of the sum of a row's exponentiated scores. Scores are divided by
  // sqrt(head_size). Enqueued on the handle's stream. `workspace`: forward_workspace() bytes.
  void forward(cudnnHandle_t handle, const void* qkv, void* out, void* statistics, void* workspace) const;
  // d_qkv: bf16, as qkv; every element is written. The other arguments are the inputs and results of forward.
  // The same input always gives the same bits. `workspace`: backward_workspace() bytes.
  void backward(cudnnHandle_t handle, const void* qkv, const void* out, const void* d_out,
                const void* statistics, void* d_qkv, void* workspace) const;

  std::int64_t forward_workspace() const { return forward_.workspace_size(); }
  std::int64_t backward_workspace() const;
  const CudnnPlan& forward_plan() const { return forward_; }
  const CudnnPlan& backward_plan() const { return backward_; }

 private:
  AttentionGraphs(const AttentionSizes& shape, float masked, CudnnPlan forward, CudnnPlan backward)
      : shape_(shape), masked_(masked), forward_(std::move(forward)), backward_(std::move(backward)) {}

  AttentionSizes shape_;
  float masked_;  // the score of a later position
  CudnnPlan forward_, backward_;
};

}  // namespace dtrun::worker::cuda
