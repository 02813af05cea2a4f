// The epilogues that matmuls may have (matmul_shape.h), if the library can do them. Fused is not always
// faster: libraries have computed some epilogues by slower kernels.
#pragma once

#include <string>
#include <string_view>

#include "worker/device/cuda/steps.h"

namespace dtrun::worker::cuda {

class Epilogues {
 public:
  // "1": all. "0": none. Or some, with commas: bias (also with ReLU), gelu, gelu_gradient, sums. Throws
  // WorkerError with EX_CONFIG for other words.
  explicit Epilogues(std::string_view words);
  // By DTRUN_CUDA_EPILOGUES, or all.
  static Epilogues wanted();

  bool may(Epilogue epilogue) const;
  // For the fingerprint, since bits depend on it: "" for all, else "none" or the words, always in the same
  // order.
  std::string name() const;

 private:
  unsigned groups_ = 0;  // a bit for each group that has a word
};

}  // namespace dtrun::worker::cuda
