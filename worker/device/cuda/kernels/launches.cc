#include "worker/device/cuda/kernels/launches.h"

#include <atomic>
#include <cstdlib>
#include <string>

#include "worker/device/cuda/kernels/trial.h"

namespace dtrun::worker::cuda {
namespace {

std::atomic<bool>& wanted() {
  static std::atomic<bool> wanted = may_launch_programmatically();
  return wanted;
}

}  // namespace

bool may_launch_programmatically() {
  const char* const value = std::getenv("DTRUN_CUDA_PROGRAMMATIC");
  return (value == nullptr || std::string(value) != "0") && architecture_of_kernels() >= 90;
}

bool programmatic_launches() { return wanted().load(std::memory_order_relaxed); }
void launch_one_by_one() { wanted() = false; }

}  // namespace dtrun::worker::cuda
