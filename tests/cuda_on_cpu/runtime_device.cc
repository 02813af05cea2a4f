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

constexpr int kSharedPerBlock = 48 * 1024, kSharedPerProcessor = 228 * 1024, kRegisters = 65536;
constexpr int kProcessors = 132, kMajor = 9, kMinor = 0, kL2Bytes = 50 << 20;

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

cudaError_t cudaGetDevice(int* device) {
  if (const cudaError_t error = usable(); error != cudaSuccess) return remember(error);
  *device = cuda_on_cpu::current_device();
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (const cudaError_t error = usable(); error != cudaSuccess) return remember(error);
  if (!exists(device)) return remember(cudaErrorInvalidDevice);
  cudaDeviceProp p;
  std::memset(&p, 0, sizeof p);
  std::snprintf(p.name, sizeof p.name, "NVIDIA H100 (simulated)");
  p.uuid.bytes[0] = static_cast<char>(1 + machine.gpus[device]);
  p.totalGlobalMem = machine.memory_bytes;
  p.sharedMemPerBlock = kSharedPerBlock;
  p.sharedMemPerBlockOptin = cuda_on_cpu::kMaxSharedBytes;
  p.sharedMemPerMultiprocessor = kSharedPerProcessor;
  p.reservedSharedMemPerBlock = 1024;
  p.regsPerBlock = p.regsPerMultiprocessor = kRegisters;
  p.warpSize = warpSize;
  p.maxThreadsPerBlock = cuda_on_cpu::kMaxThreads;
  p.maxThreadsPerMultiProcessor = 2048;
  p.maxBlocksPerMultiProcessor = 32;
  p.maxThreadsDim[0] = p.maxThreadsDim[1] = 1024;
  p.maxThreadsDim[2] = 64;
  p.maxGridSize[0] = 2147483647;
  p.maxGridSize[1] = p.maxGridSize[2] = 65535;
  p.major = kMajor;
  p.minor = kMinor;
  p.multiProcessorCount = kProcessors;
  p.concurrentKernels = 1;
  p.ECCEnabled = 1;
  p.asyncEngineCount = 3;
  p.unifiedAddressing = 1;
  p.canMapHostMemory = 1;
  p.memoryBusWidth = 5120;
  p.l2CacheSize = kL2Bytes;
  p.streamPrioritiesSupported = 1;
  p.pciBusID = 0x3b + machine.gpus[device];
  *properties = p;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (const cudaError_t error = usable(); error != cudaSuccess) return remember(error);
  if (!exists(device)) return remember(cudaErrorInvalidDevice);
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
      *value = cuda_on_cpu::kMaxThreads;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = kSharedPerBlock;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = cuda_on_cpu::kMaxSharedBytes;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *value = kSharedPerProcessor;
      return cudaSuccess;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      *value = 2048;
      return cudaSuccess;
    case cudaDevAttrWarpSize:
      *value = warpSize;
      return cudaSuccess;
    case cudaDevAttrMultiProcessorCount:
      *value = kProcessors;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
      *value = kMajor;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = kMinor;
      return cudaSuccess;
    case cudaDevAttrL2CacheSize:
      *value = kL2Bytes;
      return cudaSuccess;
    case cudaDevAttrEccEnabled:
      *value = 1;
      return cudaSuccess;
    case cudaDevAttrPciBusId:
      *value = 0x3b + machine.gpus[device];
      return cudaSuccess;
    case cudaDevAttrPciDeviceId:
      *value = 0;
      return cudaSuccess;
    case cudaDevAttrPciDomainId:
      *value = 0;
      return cudaSuccess;
    default:
      return remember(cudaErrorInvalidValue);
  }
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
  if (const cudaError_t error = usable(); error != cudaSuccess) return remember(error);
  if (!exists(device)) return remember(cudaErrorInvalidDevice);
  const std::string text = cuda_on_cpu::pci_bus_id(device);
  if (length <= static_cast<int>(text.size())) return remember(cudaErrorInvalidValue);
  std::snprintf(id, static_cast<std::size_t>(length), "%s", text.c_str());
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

// Streams, events and memory of the device are gone afterwards.
cudaError_t cudaDeviceReset() {
  if (const cudaError_t error = usable(); error != cudaSuccess) return remember(error);
  const int device = cuda_on_cpu::current_device();
  const cudaError_t error = scheduler().wait_for_device(device);
  scheduler().forget_device(device);
  cuda_on_cpu::release_all(device);
  return remember(error);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (const cudaError_t error = usable(); error != cudaSuccess) return remember(error);
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return cudaSuccess;
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
  attributes->binaryVersion = 10 * kMajor;
  attributes->ptxVersion = cuda_on_cpu::settings.compiled_for;
  attributes->maxThreadsPerBlock = cuda_on_cpu::kMaxThreads;
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  if (const cudaError_t error = usable(); error != cudaSuccess) return remember(error);
  if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout) return cudaSuccess;
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
      value > static_cast<int>(cuda_on_cpu::kMaxSharedBytes)) {
    return remember(cudaErrorInvalidValue);
  }
  cuda_on_cpu::allow_dynamic_shared(kernel, static_cast<std::size_t>(value));
  return cudaSuccess;
}
