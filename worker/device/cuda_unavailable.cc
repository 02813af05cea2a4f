#include "proto/core/exit_codes.h"
#include "worker/base/error.h"
#include "worker/device/cuda_device.h"

namespace dtrun::worker {

std::unique_ptr<Device> make_cuda_device(int, std::filesystem::path) {
  throw WorkerError(
      kExitConfig,
      "this dtrun was built without CUDA: build it where the CUDA toolkit is installed (nvcc in "
      "PATH), or set \"device\": \"cpu\"");
}

}  // namespace dtrun::worker
