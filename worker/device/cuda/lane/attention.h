// Attention as a lane computes it: each shape by cuDNN, or by the own kernels.
#pragma once

#include <cstddef>
#include <set>
#include <string>

#include "worker/device/cuda/cudnn_ops.h"
#include "worker/device/cuda/kernels/attention.h"
#include "worker/device/cuda/schedule/schedule.h"
#include "worker/device/cuda/trial.h"

namespace dtrun::worker::cuda {

// Of an Attend or AttendBackward.
AttentionShape shape_of(const auto& work) {
  return {.samples = static_cast<int>(work.samples),
          .tokens = static_cast<int>(work.tokens),
          .heads = static_cast<int>(work.heads),
          .head_size = static_cast<int>(work.width / work.heads)};
}

// T: float or __nv_bfloat16. Of its operations memory and errors are those of kernels/attention.h and
// CudnnOps.
template <typename T>
class AttentionOps {
 public:
  // From now on this shape is cuDNN's, if T is bf16, cuDNN has a plan for it, and computes the same as the
  // own kernels. "" or why not. `cudnn` outlives this.
  std::string use(CudnnOps& cudnn, const AttentionShape& shape, Trial& trial);

  // Bytes.
  std::size_t workspace(const Attend& work) const;
  std::size_t workspace(const AttendBackward& work) const;

  void forward(cudaStream_t on, const AttentionShape& shape, const T* qkv, T* out, float* statistics,
               float* workspace) const;
  void backward(cudaStream_t on, const AttentionShape& shape, const T* qkv, const T* out,
                const T* out_gradient, const float* statistics, T* qkv_gradient, float* workspace) const;

 private:
  std::string try_out(const AttentionShape& shape, Trial& trial) const;
  bool is_cudnns(const AttentionShape& shape) const { return cudnns_.contains(shape); }

  CudnnOps* cudnn_ = nullptr;
  std::set<AttentionShape> cudnns_;
};

}  // namespace dtrun::worker::cuda
