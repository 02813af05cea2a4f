#include "proto/core/exit_codes.h"
#include "worker/base/error.h"
#include "worker/device/cuda_device.h"

namespace dtrun::worker {
namespace {

[[noreturn]] void refuse() {
  throw WorkerError(
      kExitConfig,
      "this dtrun was built without CUDA: build it where the CUDA toolkit is installed (nvcc in "
      "PATH), or set \"device\": \"cpu\"");
}

}  // namespace

std::unique_ptr<Device> make_cuda_device(int, std::filesystem::path, const CudaLaunches&) { refuse(); }
Ceilings measure_cuda_ceilings(int, bool) { refuse(); }

}  // namespace dtrun::worker
