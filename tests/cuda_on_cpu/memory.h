// Memory of the simulated devices, and pinned memory of the host.
//
// All device memory lies in one region of addresses that is accessible only while the device's thread carries
// out operations: a host that dereferences a device pointer ends with SIGSEGV. AddressSanitizer reports a
// kernel that leaves its allocation, or comes after cudaFree. Fresh memory is full of ones (a float is NaN),
// so that code which expects zeros fails.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace cuda_on_cpu {

enum class Memory { kDevice, kPinned, kPageable };

// 256-byte aligned. cudaErrorMemoryAllocation if the device has less left.
cudaError_t allocate(int device, std::size_t bytes, void** pointer);
// cudaErrorInvalidValue for what allocate() did not give, or is freed already.
cudaError_t release(void* pointer);
cudaError_t allocate_pinned(std::size_t bytes, void** pointer);
cudaError_t release_pinned(void* pointer);
// Memory of the caller's is pinned until it is taken back. cudaErrorHostMemoryAlreadyRegistered if a byte of
// it is pinned; cudaErrorHostMemoryNotRegistered for what no registered range begins with.
cudaError_t register_pinned(void* pointer, std::size_t bytes);
cudaError_t unregister_pinned(void* pointer);

// The kind of memory that `pointer` points into, whether or not it is allocated.
Memory memory_of(const void* pointer);
// Whether all of [pointer, pointer + bytes), of the host's memory, is pinned, or none of it.
bool is_of_one_kind(const void* pointer, std::size_t bytes);
// Whether [pointer, pointer + bytes) lies within one allocation of a device.
bool is_allocated(const void* pointer, std::size_t bytes);
// The device that owns this device memory.
int device_of(const void* pointer);

std::size_t free_bytes(int device);
struct Allocated {
  std::size_t device = 0, pinned = 0;
};
Allocated allocated();

// While one of these lives, this process may touch device memory.
class DeviceMemoryOpen {
 public:
  DeviceMemoryOpen();
  ~DeviceMemoryOpen();
  DeviceMemoryOpen(const DeviceMemoryOpen&) = delete;
};

}  // namespace cuda_on_cpu
