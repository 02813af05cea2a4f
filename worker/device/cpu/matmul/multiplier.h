// Matmuls of matrices of fp32 by the calling thread (kernels.h).
#pragma once

#include "worker/base/buffer.h"
#include "worker/device/cpu/matmul/kernels.h"
#include "worker/device/cpu/matmul/matmul.h"

namespace dtrun::worker::matmul {

// Whether this processor has fused multiply-add.
bool multiplies_fp32();

// Used by one thread at a time.
class Multiplier {
 public:
  // Of fp32, with the same bits on every processor. Throws WorkerError (EX_CONFIG) on one without fused
  // multiply-add.
  Multiplier();
  explicit Multiplier(const Kernels& kernels) : kernels_(kernels), scratch_(kernels.scratch) {}

  void multiply(const Matmul<float>& matmul) { kernels_.multiply(matmul, scratch_.data()); }
  void multiply_gathered(const GatheredMatmul& matmul) {
    kernels_.multiply_gathered(matmul, scratch_.data());
  }
  const Kernels& kernels() const { return kernels_; }

 private:
  const Kernels& kernels_;
  const Buffer scratch_;
};

}  // namespace dtrun::worker::matmul
