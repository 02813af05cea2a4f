#include "worker/config/cuda.h"

namespace dtrun::worker {

// CMake's word: worker/config/CMakeLists.txt.
int cuda_of_this_build() { return DTRUN_CUDA_VERSION; }

// No job is for the CPU alone yet: what is comes here.
std::string cuda_refusal(const JobConfig&, int built_for) {
  return built_for == 0 ? "this dtrun was built without CUDA" : "";
}

}  // namespace dtrun::worker
