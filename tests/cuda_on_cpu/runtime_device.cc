// cudart's functions on devices and errors.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "tests/cuda_on_cpu/block.h"
#include "tests/cuda_on_cpu/errors.h"
#include "tests/cuda_on_cpu/grid.h"
#include "tests/cuda_on_cpu/machine.h"
#include "tests/cuda_on_cpu/memory.h"
#include "tests/cuda_on_cpu/scheduler.h"
#include "tests/cuda_on_cpu/settings.h"

using cuda_on_cpu::machine;
using cuda_on_cpu::remember;
using cuda_on_cpu::scheduler;
using cuda_on_cpu::usable;

namespace {

constexpr int kProcessors = 132, kMajor = 9, kMinor = 0;

bool exists(int device) { return device >= 0 && device < static_cast<int>(machine.gpus.size()); }

}  // namespace

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 0;
  if (const cudaError_t error = usable(); error != cudaSuccess) return remember(error);
  *count = static_cast<int>(machine.gpus.size());
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  if (const cudaError_t error = usable(); error != cudaSuccess) return remember(error);
  if (!exists(device)) return remember(cudaErrorInvalidDevice);
  cuda_on_cpu::set_current_device(device);
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (const cudaError_t error = usable(); error != cudaSuccess) return remember(error);
  if (!exists(device)) return remember(cudaErrorInvalidDevice);
  cudaDeviceProp p;
  std::memset(&p, 0, sizeof p);
  std::snprintf(p.name, sizeof p.name, "NVIDIA H100 (simulated)");
  p.totalGlobalMem = machine.memory_bytes;
  p.major = kMajor;
  p.minor = kMinor;
  p.multiProcessorCount = kProcessors;
  *properties = p;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  if (const cudaError_t error = usable(); error != cudaSuccess) return remember(error);
  if (const cudaError_t error = scheduler().allowed_in_capture(); error != cudaSuccess)
    return remember(error);
  return remember(scheduler().wait_for_device(cuda_on_cpu::current_device()));
}

cudaError_t cudaGetLastError() {
  const cudaError_t error = cuda_on_cpu::last_error();
  cuda_on_cpu::forget_last_error();
  return error;
}

cudaError_t cudaPeekAtLastError() { return cuda_on_cpu::last_error(); }

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
  if (const cudaError_t error = usable(); error != cudaSuccess) return remember(error);
  if (attributes == nullptr || kernel == nullptr) return remember(cudaErrorInvalidValue);
  *attributes = {};
  attributes->ptxVersion = cuda_on_cpu::settings.compiled_for;
  return cudaSuccess;
}
