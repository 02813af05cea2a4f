#include "worker/config/cuda.h"

namespace dtrun::worker {

// Defined by worker/config/CMakeLists.txt.
int cuda_of_this_build() { return DTRUN_CUDA_VERSION; }

std::string cuda_refusal(int built_for) { return built_for == 0 ? "this dtrun was built without CUDA" : ""; }

}  // namespace dtrun::worker
