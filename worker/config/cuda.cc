#include "worker/config/cuda.h"

namespace dtrun::worker {

// Defined by worker/config/CMakeLists.txt.
int cuda_of_this_build() { return DTRUN_CUDA_VERSION; }

// The check for jobs that only the CPU can train; there are none yet.
std::string cuda_refusal(const JobConfig&, int built_for) {
  return built_for == 0 ? "this dtrun was built without CUDA" : "";
}

}  // namespace dtrun::worker
