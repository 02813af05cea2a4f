// Memory of the simulated device: allocations, refusals and reports.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <thread>

#include "tests/cuda_on_cpu/device_test.h"

namespace {

using namespace cuda_on_cpu;

TEST_CASE("device memory is aligned to 256 bytes, full of NaN, and counted") {
  const Restored restored;
  std::size_t free_before = 0, free = 0, total = 0;
  OK(cudaMemGetInfo(&free_before, &total));
  CHECK(total == machine.memory_bytes);
  const Alive before = alive();
  const OnDevice<float> one(3), other(100);
  CHECK(reinterpret_cast<std::uintptr_t>(one.data()) % 256 == 0);
  CHECK(reinterpret_cast<std::uintptr_t>(other.data()) % 256 == 0);
  CHECK(std::isnan(one.get()[2]));
  OK(cudaMemGetInfo(&free, &total));
  CHECK(free_before - free == 256 + 512);
  CHECK(alive().device_allocations == before.device_allocations + 2);
}

TEST_CASE("a device has no more memory than it says, and has it again after cudaFree") {
  const Restored restored;
  machine.memory_bytes = 1 << 20;
  void *most = nullptr, *more = nullptr;
  CHECK(cudaMalloc(&most, (1 << 20) + 1) == cudaErrorMemoryAllocation);
  CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
  CHECK(cudaGetLastError() == cudaSuccess);
  for (int i = 0; i < 20; ++i) {  // more often than there are addresses for it
    OK(cudaMalloc(&most, 1 << 20));
    CHECK(cudaMalloc(&more, 1) == cudaErrorMemoryAllocation);
    CHECK(more == nullptr);
    OK(cudaFree(most));
  }
  cudaGetLastError();
}

TEST_CASE("each device has memory of its own") {
  const Restored restored;
  machine.gpus = {0, 1};
  machine.memory_bytes = 1 << 20;
  void *first = nullptr, *second = nullptr;
  OK(cudaMalloc(&first, 1 << 20));
  OK(cudaSetDevice(1));
  OK(cudaMalloc(&second, 1 << 20));
  OK(cudaFree(second));
  OK(cudaFree(first));
  CHECK(cudaSetDevice(2) == cudaErrorInvalidDevice);
}

TEST_CASE("zero bytes are a null pointer, and null is freed as often as one likes") {
  const Restored restored;
  void* pointer = &pointer;
  OK(cudaMalloc(&pointer, 0));
  CHECK(pointer == nullptr);
  OK(cudaFree(nullptr));
  OK(cudaFreeHost(nullptr));
}

TEST_CASE("what was not allocated is not freed, nor freed twice") {
  const Restored restored;
  int host = 0;
  CHECK(cudaFree(&host) == cudaErrorInvalidValue);
  CHECK(cudaFreeHost(&host) == cudaErrorInvalidValue);
  void* pointer = nullptr;
  OK(cudaMalloc(&pointer, 512));
  CHECK(cudaFree(static_cast<char*>(pointer) + 256) == cudaErrorInvalidValue);
  OK(cudaFree(pointer));
  CHECK(cudaFree(pointer) == cudaErrorInvalidValue);
}

TEST_CASE("a copy or fill beyond an allocation, or in the wrong direction, is refused") {
  const Restored restored;
  const OnDevice<char> device(100);
  const Pinned<char> pinned(200);
  std::vector<char> host(200);
  const auto copy = [&](void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    return cudaMemcpyAsync(to, from, bytes, kind, nullptr);
  };
  OK(copy(device.data(), host.data(), 100, cudaMemcpyHostToDevice));
  OK(copy(device.data(), host.data(), 100, cudaMemcpyDefault));
  CHECK(copy(device.data(), host.data(), 101, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  CHECK(copy(device.data() + 1, host.data(), 100, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  CHECK(copy(host.data(), device.data(), 101, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
  CHECK(copy(pinned.data(), device.data(), 100, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  CHECK(copy(device.data(), pinned.data(), 100, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
  CHECK(copy(host.data(), pinned.data(), 100, cudaMemcpyDeviceToDevice) == cudaErrorInvalidValue);
  CHECK(copy(host.data(), pinned.data(), 100, static_cast<cudaMemcpyKind>(9)) ==
        cudaErrorInvalidMemcpyDirection);
  CHECK(cudaMemsetAsync(device.data(), 0, 101, nullptr) == cudaErrorInvalidValue);
  CHECK(cudaMemset(host.data(), 0, 100) == cudaErrorInvalidValue);
  OK(cudaMemset(pinned.data(), 7, 200));
  CHECK(pinned[199] == 7);
}

TEST_CASE("memory of the host is registered once, taken back where it begins, and seen while it is") {
  const Restored restored;
  const Alive before = alive();
  std::vector<char> host(300);
  const Pinned<char> pinned(100);
  const OnDevice<char> device(100);
  const auto try_register = [](char* begin, std::size_t bytes) {
    return cudaHostRegister(begin, bytes, cudaHostRegisterDefault);
  };
  char* const middle = host.data() + 100;
  OK(try_register(middle, 100));
  CHECK(alive().pinned_allocations == before.pinned_allocations + 2);
  CHECK(try_register(middle, 100) == cudaErrorHostMemoryAlreadyRegistered);
  CHECK(try_register(host.data(), 101) == cudaErrorHostMemoryAlreadyRegistered);
  CHECK(try_register(middle + 99, 1) == cudaErrorHostMemoryAlreadyRegistered);
  CHECK(try_register(pinned.data(), 100) == cudaErrorHostMemoryAlreadyRegistered);
  CHECK(try_register(device.data(), 100) == cudaErrorInvalidValue);
  CHECK(try_register(middle, 0) == cudaErrorInvalidValue);
  CHECK(try_register(nullptr, 1) == cudaErrorInvalidValue);
  OK(try_register(host.data(), 100));  // up to its neighbour
  OK(try_register(middle + 100, 100));
  CHECK(cudaFreeHost(middle) == cudaErrorInvalidValue);
  CHECK(cudaHostUnregister(middle + 1) == cudaErrorHostMemoryNotRegistered);
  CHECK(cudaHostUnregister(pinned.data()) == cudaErrorHostMemoryNotRegistered);
  CHECK(cudaHostUnregister(nullptr) == cudaErrorInvalidValue);
  for (char* const begin : {host.data(), middle, middle + 100}) OK(cudaHostUnregister(begin));
  CHECK(cudaHostUnregister(middle) == cudaErrorHostMemoryNotRegistered);
  plan_faults({.host_register = cudaErrorNotSupported});
  CHECK(try_register(middle, 100) == cudaErrorNotSupported);
  CHECK(cudaHostUnregister(middle) == cudaErrorHostMemoryNotRegistered);
}

TEST_CASE("a copy of registered memory is one of pinned memory, and does not leave it") {
  const Restored restored;
  std::vector<char> host(300, 1);
  const OnDevice<char> device(std::vector<char>(200, 0));
  const TestStream stream;
  OK(cudaHostRegister(host.data(), 100, cudaHostRegisterDefault));
  OK(cudaMemcpyAsync(device.data(), host.data() + 50, 50, cudaMemcpyHostToDevice, stream));
  std::fill_n(host.data(), 100, 2);
  OK(cudaStreamSynchronize(stream));
  CHECK(device.get()[0] == 2);
  CHECK(cudaMemcpy(device.data(), host.data() + 50, 51, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  OK(cudaHostRegister(host.data() + 100, 100, cudaHostRegisterDefault));
  OK(cudaMemcpy(device.data(), host.data() + 50, 150, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(host.data() + 150, device.data(), 51, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
  OK(cudaMemcpy(host.data() + 200, device.data(), 100, cudaMemcpyDeviceToHost));
  for (const int begin : {0, 100}) OK(cudaHostUnregister(host.data() + begin));
}

TEST_CASE("what a thread copies between the device and pageable memory is counted for that thread") {
  const Restored restored;
  constexpr std::size_t kSmall = 65536, kLarge = kSmall + 1;
  std::vector<char> host(kLarge);
  const OnDevice<char> device(kLarge), other(kLarge);
  const Pinned<char> pinned(kLarge);
  reset_counters();
  const auto counted = [] { return counters().copied_pageable[std::this_thread::get_id()]; };

  OK(cudaMemcpyAsync(device.data(), pinned.data(), kLarge, cudaMemcpyHostToDevice, nullptr));
  OK(cudaMemcpyAsync(pinned.data(), device.data(), kLarge, cudaMemcpyDeviceToHost, nullptr));
  OK(cudaMemcpyAsync(other.data(), device.data(), kLarge, cudaMemcpyDeviceToDevice, nullptr));
  OK(cudaMemcpyAsync(pinned.data(), host.data(), kLarge, cudaMemcpyHostToHost, nullptr));
  OK(cudaMemcpyAsync(device.data(), host.data(), kSmall, cudaMemcpyHostToDevice, nullptr));
  CHECK(cudaMemcpy(device.data() + 1, host.data(), kLarge, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  OK(cudaHostRegister(host.data(), kLarge, cudaHostRegisterDefault));
  OK(cudaMemcpy(device.data(), host.data(), kLarge, cudaMemcpyHostToDevice));
  OK(cudaHostUnregister(host.data()));
  CHECK(counted() == 0);

  OK(cudaMemcpyAsync(device.data(), host.data(), kLarge, cudaMemcpyHostToDevice, nullptr));
  CHECK(counted() == kLarge);
  OK(cudaMemcpy(device.data(), host.data(), kLarge, cudaMemcpyHostToDevice));
  CHECK(counted() == 2 * kLarge);
  std::thread([&] {
    CHECK(cudaMemcpy(host.data(), device.data(), 3, cudaMemcpyDeviceToHost) == cudaSuccess);
    CHECK(cudaMemcpyAsync(host.data(), device.data(), 4, cudaMemcpyDeviceToHost, nullptr) == cudaSuccess);
    CHECK(counted() == 7);
  }).join();
  CHECK(counted() == 2 * kLarge);
}

TEST_CASE("what is forgotten can be seen") {
  const Restored restored;
  const Alive before = alive();
  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr;
  void *device = nullptr, *pinned = nullptr;
  OK(cudaStreamCreate(&stream));
  OK(cudaEventCreate(&event));
  OK(cudaMalloc(&device, 1));
  OK(cudaMallocHost(&pinned, 1));
  Alive now = alive();
  CHECK(now.streams == before.streams + 1);
  CHECK(now.events == before.events + 1);
  CHECK(now.device_allocations == before.device_allocations + 1);
  CHECK(now.pinned_allocations == before.pinned_allocations + 1);
  OK(cudaFreeHost(pinned));
  OK(cudaDeviceReset());  // takes the rest
  CHECK(alive() == before);
  CHECK(cudaStreamSynchronize(stream) == cudaErrorInvalidResourceHandle);
}

}  // namespace
