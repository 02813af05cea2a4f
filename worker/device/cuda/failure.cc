#include "worker/device/cuda/failure.h"

#include "proto/core/exit_codes.h"
#include "proto/core/text.h"
#include "worker/base/error.h"

namespace dtrun::worker::cuda {

void check(cudaError_t result, const char* doing) {
  if (result == cudaSuccess) return;
  throw WorkerError(kExitOsError, std::string("the GPU failed while ") + doing + ": " +
                                      cudaGetErrorString(result) + " (" + cudaGetErrorName(result) +
                                      "); `nvidia-smi -q` and the kernel's log (Xid) tell more");
}

void check_launch(const char* kernel) {
  const cudaError_t result = cudaGetLastError();
  if (result != cudaSuccess) check(result, (std::string("starting ") + kernel).c_str());
}

std::size_t free_memory() {
  std::size_t free = 0, total = 0;
  return cudaMemGetInfo(&free, &total) == cudaSuccess ? free : 0;
}

void out_of_memory(const std::string& what, std::size_t bytes, const std::string& advice) {
  std::size_t free = 0, total = 0;
  const bool known = cudaMemGetInfo(&free, &total) == cudaSuccess;
  throw WorkerError(
      kExitConfig,
      "the GPU has no room for " + what + ": " + in_gibibytes(bytes) + " asked" +
          (known ? ", " + in_gibibytes(free) + " of " + in_gibibytes(total) + " free" : "") + "; " +
          (advice.empty() ? "set a smaller train.micro_batch_size or model.gradient_checkpointing" : advice) +
          ", or see who else uses the GPU: nvidia-smi");
}

}  // namespace dtrun::worker::cuda
