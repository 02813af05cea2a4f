#include "worker/device/cuda/kernels/launches.h"

#include <atomic>
#include <cstdlib>
#include <string>

#include "worker/device/cuda/kernels/trial.h"

namespace dtrun::worker::cuda {
namespace {

bool switched_off() {
  const char* const value = std::getenv("DTRUN_CUDA_PROGRAMMATIC");
  return value != nullptr && std::string(value) == "0";
}

std::atomic<bool>& wanted() {
  static std::atomic<bool> wanted = may_launch_programmatically();
  return wanted;
}

}  // namespace

bool may_launch_programmatically() { return !switched_off() && architecture_of_kernels() >= 90; }

std::string why_not_programmatic() {
  if (switched_off()) return "switched off by DTRUN_CUDA_PROGRAMMATIC";
  const int architecture = architecture_of_kernels();
  return "kernels are compiled for " + std::to_string(architecture / 10) + "." +
         std::to_string(architecture % 10);
}

bool programmatic_launches() { return wanted().load(std::memory_order_relaxed); }
void launch_one_by_one() { wanted() = false; }

}  // namespace dtrun::worker::cuda
