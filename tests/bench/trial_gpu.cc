#include "tests/bench/trial_gpu.h"

#include <utility>

namespace dtrun::worker::cuda {

TrialGpu::TrialGpu(Timer measure)
    : timer(std::move(measure)), cudnn(make_cudnn_ops(0, "")), workspace(product_workspace(arithmetic)) {}

Buffer product_workspace(CudaArithmetic& arithmetic) {
  constexpr std::size_t kMost = std::size_t{32} << 20;
  return arithmetic.allocate_bytes(kMost, "the work of matmuls");
}

}  // namespace dtrun::worker::cuda
