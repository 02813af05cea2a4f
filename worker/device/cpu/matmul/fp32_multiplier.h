// Matmuls of fp32 by the calling thread, with the same bits on every processor (kernels.h).
#pragma once

#include "worker/base/buffer.h"
#include "worker/device/cpu/matmul/kernels.h"
#include "worker/device/cpu/matmul/matmul.h"

namespace dtrun::worker::matmul {

// Whether this processor has fused multiply-add.
bool multiplies_fp32();

// Used by one thread at a time.
class Fp32Multiplier {
 public:
  // Throws WorkerError (EX_CONFIG) on a processor without fused multiply-add.
  Fp32Multiplier();
  explicit Fp32Multiplier(const Kernels& kernels) : kernels_(kernels), scratch_(kernels.scratch) {}

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
