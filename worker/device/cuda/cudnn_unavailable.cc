#include "worker/device/cuda/cudnn_ops.h"

namespace dtrun::worker::cuda {

std::unique_ptr<CudnnOps> make_cudnn_ops(int, const std::string&) { return nullptr; }

const std::string& why_no_cudnn_ops() {
  static const std::string reason = "this dtrun was built without cuDNN: build it where cudnn.h is installed";
  return reason;
}

std::string cudnn_version() { return ""; }

}  // namespace dtrun::worker::cuda
