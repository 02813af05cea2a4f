#include "worker/device/cuda/kernels/launches.h"

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdlib>
#include <string>

namespace dtrun::worker::cuda {
namespace {

bool possible() {
  const char* const value = std::getenv("DTRUN_CUDA_PROGRAMMATIC");
  int gpu = 0, major = 0;
  return (value == nullptr || std::string(value) != "0") && cudaGetDevice(&gpu) == cudaSuccess &&
         cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, gpu) == cudaSuccess && major >= 9;
}

std::atomic<bool>& wanted() {
  static std::atomic<bool> wanted = possible();
  return wanted;
}

}  // namespace

bool programmatic_launches() { return wanted().load(std::memory_order_relaxed); }
void launch_one_by_one() { wanted() = false; }

}  // namespace dtrun::worker::cuda
