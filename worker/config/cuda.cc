#include "worker/config/cuda.h"

namespace dtrun::worker {

// Defined by worker/config/CMakeLists.txt.
int cuda_of_this_build() { return DTRUN_CUDA_VERSION; }

std::string cuda_refusal(const JobConfig& config, int built_for) {
  if (built_for == 0) return "this dtrun was built without CUDA";
  return config.train.has_local_replicas() ? "/train/local_replicas is for the CPU" : "";
}

}  // namespace dtrun::worker
