// Whether cuBLASLt multiplies right on this GPU: releases of it have left out the last terms of sums (13.1.1,
// some shapes).
#pragma once

#include <map>
#include <optional>
#include <string>

#include "worker/device/cuda/matmul/matmuls.h"
#include "worker/device/cuda/trial.h"

namespace dtrun::worker::cuda {

// A matmul of ones: the first and the last row must be the number of terms. "" or what is wrong; none if
// there is no room. `workspace`: what the matmul needs. Waits.
std::optional<std::string> fault_of(const MatmulShape& shape, Matmuls& matmuls, Trial& trial,
                                    void* workspace);

// Makes sure of matmuls before a lane relies on them: an algorithm that is wrong gives way to the library's
// next proposal, with a line that says so. A matmul for which there is no room is taken for right.
// DTRUN_CUDA_MATMUL_CHECK=0 only tells of what is wrong, and changes nothing.
class MatmulCheck {
 public:
  // `workspace`: Matmuls::kLargestWorkspace bytes of device memory; null: nothing is checked.
  MatmulCheck(Matmuls& matmuls, Trial& trial, void* workspace);

  // Whether some algorithm computes it right. Waits the first time.
  bool passes(const MatmulShape& shape);
  // Throws WorkerError with EX_CONFIG if one of these is wrong, or EX_SOFTWARE if it has no algorithm. The
  // number of times is not looked at.
  void require(const std::map<MatmulShape, int>& matmuls);

 private:
  std::string first_fault(const MatmulShape& shape);

  Matmuls& matmuls_;
  Trial& trial_;
  void* const workspace_;
  const bool only_tells_;
  std::map<MatmulShape, std::string> faults_;  // of each that was looked at, what was wrong first
};

}  // namespace dtrun::worker::cuda
