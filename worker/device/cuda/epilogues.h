// What matmuls may do besides before they are written (matmul_shape.h), where the library can. Fused is not
// always faster: libraries have computed some epilogues by slower kernels.
#pragma once

#include <string>
#include <string_view>

#include "worker/device/cuda/matmul_shape.h"

namespace dtrun::worker::cuda {

class Epilogues {
 public:
  // "1": all. "0": none. Or some, with commas: bias (also with ReLU), gelu, gelu_gradient, sums. Throws
  // WorkerError with EX_CONFIG if it is nothing of that.
  explicit Epilogues(std::string_view words);
  // By DTRUN_CUDA_EPILOGUES, or all.
  static Epilogues wanted();

  bool may(Epilogue epilogue) const;
  // As the bits depend on it: "" for all, else "none" or which, in an order that is always the same.
  std::string name() const;

 private:
  unsigned groups_ = 0;  // a bit for each group that has a word
};

}  // namespace dtrun::worker::cuda
