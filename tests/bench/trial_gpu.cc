#include "tests/bench/trial_gpu.h"

#include <utility>

namespace dtrun::worker::cuda {
namespace {

Algorithms committed_for_this_gpu() {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, 0), "asking what it is");
  return parse_algorithms(committed_algorithms(), kAlgorithmsFile)[platform_of(properties)];
}

}  // namespace

TrialGpu::TrialGpu(Timer measure)
    : timer(std::move(measure)),
      table(committed_for_this_gpu()),
      matmuls(table),
      cudnn(make_cudnn_ops(0, "")),
      workspace(product_workspace(arithmetic)) {}

Buffer product_workspace(CudaArithmetic& arithmetic) {
  constexpr std::size_t kMost = std::size_t{32} << 20;
  return arithmetic.allocate_bytes(kMost, "the work of matmuls");
}

}  // namespace dtrun::worker::cuda
