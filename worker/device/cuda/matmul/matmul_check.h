// Checks that cuBLASLt multiplies correctly on this GPU: releases of it have left out the last terms of sums
// (13.1.1, some shapes).
#pragma once

#include <map>
#include <optional>
#include <string>

#include "worker/device/cuda/matmul/matmuls.h"
#include "worker/device/cuda/trial.h"

namespace dtrun::worker::cuda {

// Multiplies ones: each value in the result's first and last row must be the number of terms. Returns "" or
// a description of the fault; nothing if there is no room. `workspace`: device memory of the size that the
// matmul asks for. Blocks.
std::optional<std::string> fault_of(const MatmulShape& shape, Matmuls& matmuls, Trial& trial,
                                    void* workspace);

// Checks matmuls before a lane relies on them: the library's next proposal replaces an algorithm that is
// wrong, and a warning is logged. A matmul for which there is no room passes. With DTRUN_CUDA_MATMUL_CHECK=0
// faults are only logged, and no algorithm is replaced.
class MatmulCheck {
 public:
  // `workspace`: Matmuls::kLargestWorkspace bytes of device memory; null: nothing is checked.
  MatmulCheck(Matmuls& matmuls, Trial& trial, void* workspace);

  // Whether some algorithm computes it correctly. Blocks the first time.
  bool passes(const MatmulShape& shape);
  // Throws WorkerError with EX_CONFIG if one of these is wrong, or EX_SOFTWARE if it has no algorithm.
  // The number of times is not used.
  void require(const std::map<MatmulShape, int>& matmuls);

 private:
  std::string first_fault(const MatmulShape& shape);

  Matmuls& matmuls_;
  Trial& trial_;
  void* const workspace_;
  const bool only_tells_;
  std::map<MatmulShape, std::string> faults_;  // the first fault of each shape checked; "" for none
};

}  // namespace dtrun::worker::cuda
