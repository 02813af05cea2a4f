// For a toolkit without NVTX.
#include "worker/device/cuda/timing/nvtx.h"

namespace dtrun::worker::cuda::nvtx {

bool attached() { return false; }
void push(const char*) {}
void pop() {}

}  // namespace dtrun::worker::cuda::nvtx
