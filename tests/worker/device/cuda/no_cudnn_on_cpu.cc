// There is no stand-in for cuDNN.
#include "worker/device/cuda/libraries/cudnn.h"

namespace dtrun::worker::cuda {

const Cudnn* cudnn() { return nullptr; }

const std::string& why_no_cudnn() {
  static const std::string reason = "the stand-in for a GPU has no cuDNN";
  return reason;
}

}  // namespace dtrun::worker::cuda
