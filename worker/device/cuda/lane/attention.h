// The attention of a lane: each shape is computed by cuDNN, or by the own kernels.
#pragma once

#include <cstddef>
#include <set>
#include <string>

#include "worker/device/cuda/cudnn_ops.h"
#include "worker/device/cuda/kernels/attention.h"
#include "worker/device/cuda/steps.h"
#include "worker/device/cuda/trial.h"

namespace dtrun::worker::cuda {

// The shape of an Attend or AttendBackward.
AttentionShape shape_of(const auto& work) {
  return {.samples = static_cast<int>(work.samples),
          .tokens = static_cast<int>(work.tokens),
          .heads = static_cast<int>(work.heads),
          .head_size = static_cast<int>(work.width / work.heads)};
}

// T: float or __nv_bfloat16. Memory is as in kernels/attention.h, errors as in CudnnOps.
template <typename T>
class AttentionOps {
 public:
  // Makes cuDNN compute this shape from now on, if T is bf16, cuDNN has a plan for the shape, and its results
  // agree with those of the own kernels. Returns "", or the reason against it. REQUIRES: `cudnn` outlives
  // this.
  std::string use(CudnnOps& cudnn, const AttentionShape& shape, Trial& trial);

  // Bytes.
  std::size_t workspace(const AttentionForward& work) const;
  std::size_t workspace(const AttentionBackward& work) const;

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
