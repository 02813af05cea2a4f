#include "worker/device/cuda/kernels/launches.h"

#include <atomic>
#include <string>

#include "worker/device/cuda/kernels/trial.h"

namespace dtrun::worker::cuda {
namespace {

std::atomic<bool>& wanted() {
  static std::atomic<bool> wanted = may_launch_programmatically();
  return wanted;
}

}  // namespace

bool may_launch_programmatically() { return architecture_of_kernels() >= 90; }

std::string why_not_programmatic() {
  if (may_launch_programmatically()) return "no graph has them";
  const int architecture = architecture_of_kernels();
  return "kernels are compiled for " + std::to_string(architecture / 10) + "." +
         std::to_string(architecture % 10);
}

bool programmatic_launches() { return wanted().load(std::memory_order_relaxed); }
void launch_one_by_one() { wanted() = false; }

}  // namespace dtrun::worker::cuda
