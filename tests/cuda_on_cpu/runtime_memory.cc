// cudart's functions on memory.
#include <cuda_runtime_api.h>

#include <cstring>
#include <memory>
#include <vector>

#include "tests/cuda_on_cpu/counters.h"
#include "tests/cuda_on_cpu/errors.h"
#include "tests/cuda_on_cpu/faults.h"
#include "tests/cuda_on_cpu/machine.h"
#include "tests/cuda_on_cpu/memory.h"
#include "tests/cuda_on_cpu/scheduler.h"
#include "tests/cuda_on_cpu/traffic.h"

using cuda_on_cpu::Memory;
using cuda_on_cpu::Operation;
using cuda_on_cpu::remember;
using cuda_on_cpu::scheduler;
using cuda_on_cpu::usable;

namespace {

// usable(), and no capture forbids it.
cudaError_t usable_outside_capture() {
  const cudaError_t error = usable();
  return error != cudaSuccess ? error : scheduler().allowed_in_capture();
}

// So many bytes from pageable memory CUDA takes along with the call (see counters.h).
constexpr std::size_t kSentWithCall = std::size_t{64} << 10;

struct Copy {
  void* to;
  const void* from;
  std::size_t bytes;
  Memory to_memory, from_memory;

  bool to_device() const { return to_memory == Memory::kDevice; }
  bool from_device() const { return from_memory == Memory::kDevice; }

  cudaError_t check(cudaMemcpyKind kind) const {
    const bool fits = kind == cudaMemcpyHostToHost       ? !to_device() && !from_device()
                      : kind == cudaMemcpyHostToDevice   ? to_device() && !from_device()
                      : kind == cudaMemcpyDeviceToHost   ? !to_device() && from_device()
                      : kind == cudaMemcpyDeviceToDevice ? to_device() && from_device()
                                                         : true;
    if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
    if (!fits || !to || !from) return cudaErrorInvalidValue;
    if (to_device() && !cuda_on_cpu::is_allocated(to, bytes)) return cudaErrorInvalidValue;
    if (from_device() && !cuda_on_cpu::is_allocated(from, bytes)) return cudaErrorInvalidValue;
    // CUDA's manual has it at cuMemcpy.
    if (!to_device() && !cuda_on_cpu::is_of_one_kind(to, bytes)) return cudaErrorInvalidValue;
    if (!from_device() && !cuda_on_cpu::is_of_one_kind(from, bytes)) return cudaErrorInvalidValue;
    return cudaSuccess;
  }

  void count_for_caller() const {
    const bool from_pageable = to_device() && from_memory == Memory::kPageable;
    const bool to_pageable = from_device() && to_memory == Memory::kPageable;
    if (to_pageable || (from_pageable && bytes > kSentWithCall)) cuda_on_cpu::count_pageable_copy(bytes);
  }

  // From pageable memory through a buffer of CUDA's own: then `from` is read before this returns.
  Operation operation(bool buffered) const {
    cuda_on_cpu::list(
        {.name = "copy", .read = from_device() ? bytes : 0, .written = to_device() ? bytes : 0});
    if (!buffered) {
      return {[copy = *this] {
        if (copy.to_device() && !copy.from_device()) cuda_on_cpu::count_upload(copy.bytes);
        std::memmove(copy.to, copy.from, copy.bytes);
      }};
    }
    const char* const begin = static_cast<const char*>(from);
    const auto buffer = std::make_shared<const std::vector<char>>(begin, begin + bytes);
    return {[copy = *this, buffer] {
      cuda_on_cpu::count_upload(copy.bytes);
      std::memcpy(copy.to, buffer->data(), copy.bytes);
    }};
  }
};

Copy copy_of(void* to, const void* from, std::size_t bytes) {
  return {to, from, bytes, cuda_on_cpu::memory_of(to), cuda_on_cpu::memory_of(from)};
}

cudaError_t check_set(void* to, std::size_t bytes) {
  switch (cuda_on_cpu::memory_of(to)) {
    case Memory::kDevice:
      return cuda_on_cpu::is_allocated(to, bytes) ? cudaSuccess : cudaErrorInvalidValue;
    case Memory::kPinned:
      return cudaSuccess;
    case Memory::kPageable:
      return cudaErrorInvalidValue;
  }
  return cudaErrorInvalidValue;
}

Operation set(void* to, int value, std::size_t bytes) {
  cuda_on_cpu::list({.name = "fill", .written = bytes});
  return {[=] { std::memset(to, value, bytes); }};
}

}  // namespace

cudaError_t cudaMalloc(void** pointer, std::size_t bytes) {
  if (const cudaError_t error = usable_outside_capture(); error != cudaSuccess) return remember(error);
  if (!pointer) return remember(cudaErrorInvalidValue);
  *pointer = nullptr;
  if (bytes == 0) return cudaSuccess;
  return remember(cuda_on_cpu::allocate(cuda_on_cpu::current_device(), bytes, pointer));
}

// CUDA may wait for the device here, and does not promise it. So this does not: late work finds its memory
// gone.
cudaError_t cudaFree(void* pointer) {
  if (const cudaError_t error = usable_outside_capture(); error != cudaSuccess) return remember(error);
  return pointer ? remember(cuda_on_cpu::release(pointer)) : cudaSuccess;
}

cudaError_t cudaHostAlloc(void** pointer, std::size_t bytes, unsigned /*flags*/) {
  if (const cudaError_t error = usable_outside_capture(); error != cudaSuccess) return remember(error);
  if (!pointer) return remember(cudaErrorInvalidValue);
  *pointer = nullptr;
  if (bytes == 0) return cudaSuccess;
  return remember(cuda_on_cpu::allocate_pinned(bytes, pointer));
}

cudaError_t cudaFreeHost(void* pointer) {
  if (const cudaError_t error = usable_outside_capture(); error != cudaSuccess) return remember(error);
  return pointer ? remember(cuda_on_cpu::release_pinned(pointer)) : cudaSuccess;
}

cudaError_t cudaHostRegister(void* pointer, std::size_t bytes, unsigned /*flags*/) {
  if (const cudaError_t error = usable_outside_capture(); error != cudaSuccess) return remember(error);
  if (!pointer || bytes == 0) return remember(cudaErrorInvalidValue);
  if (cuda_on_cpu::memory_of(pointer) == Memory::kDevice) return remember(cudaErrorInvalidValue);
  if (const cudaError_t fault = cuda_on_cpu::fault_of_host_register(); fault != cudaSuccess)
    return remember(fault);
  return remember(cuda_on_cpu::register_pinned(pointer, bytes));
}

cudaError_t cudaHostUnregister(void* pointer) {
  if (const cudaError_t error = usable_outside_capture(); error != cudaSuccess) return remember(error);
  if (!pointer) return remember(cudaErrorInvalidValue);
  return remember(cuda_on_cpu::unregister_pinned(pointer));
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  if (const cudaError_t error = usable(); error != cudaSuccess) return remember(error);
  *free = cuda_on_cpu::free_bytes(cuda_on_cpu::current_device());
  *total = cuda_on_cpu::machine.memory_bytes;
  return cudaSuccess;
}

// As in CUDA's manual, "API synchronization behavior": to pageable memory, and between host memories, the
// copy is done when the call returns; from pageable memory the source has been read; pinned memory is touched
// when the stream gets there.
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  if (const cudaError_t error = usable(); error != cudaSuccess) return remember(error);
  if (bytes == 0) return remember(scheduler().check_stream(stream));
  const Copy copy = copy_of(to, from, bytes);
  if (const cudaError_t error = copy.check(kind); error != cudaSuccess) return remember(error);
  copy.count_for_caller();
  // A graph's copy reads its source each time that it runs.
  const bool buffered =
      copy.from_memory == Memory::kPageable && copy.to_device() && !scheduler().is_capturing(stream);
  const bool blocks = !copy.to_device() && (copy.to_memory == Memory::kPageable || !copy.from_device());
  return remember(cuda_on_cpu::enqueue(stream, copy.operation(buffered), blocks));
}

// In the legacy default stream. Within a device nobody waits for it; from pageable memory it may still be on
// its way from CUDA's buffer when this returns.
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  if (const cudaError_t error = usable_outside_capture(); error != cudaSuccess) return remember(error);
  if (bytes == 0) return cudaSuccess;
  const Copy copy = copy_of(to, from, bytes);
  if (const cudaError_t error = copy.check(kind); error != cudaSuccess) return remember(error);
  copy.count_for_caller();
  const bool buffered = copy.from_memory == Memory::kPageable && copy.to_device();
  if (buffered) {
    if (const cudaError_t error = scheduler().wait_for_stream(nullptr); error != cudaSuccess)
      return remember(error);
  }
  const bool blocks = !buffered && !(copy.to_device() && copy.from_device());
  return remember(cuda_on_cpu::enqueue(nullptr, copy.operation(buffered), blocks));
}

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  if (const cudaError_t error = usable(); error != cudaSuccess) return remember(error);
  if (bytes == 0) return remember(scheduler().check_stream(stream));
  if (const cudaError_t error = check_set(to, bytes); error != cudaSuccess) return remember(error);
  return remember(cuda_on_cpu::enqueue(stream, set(to, value, bytes)));
}

cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
  if (const cudaError_t error = usable_outside_capture(); error != cudaSuccess) return remember(error);
  if (bytes == 0) return cudaSuccess;
  if (const cudaError_t error = check_set(to, bytes); error != cudaSuccess) return remember(error);
  const bool blocks = cuda_on_cpu::memory_of(to) == Memory::kPinned;
  return remember(cuda_on_cpu::enqueue(nullptr, set(to, value, bytes), blocks));
}
