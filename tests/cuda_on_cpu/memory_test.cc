// Memory, and launches, that CUDA refuses; and memory that nobody has written, which is NaN.
#include <cmath>
#include <cstdint>

#include "tests/cuda_on_cpu/device_test.h"

namespace dtrun::memory_test {

namespace {

using namespace cuda_on_cpu;

__global__ void count_up(int* x) { ++x[threadIdx.x]; }

__global__ void reads_unset(float* out, bool dynamic) {
  DYNAMIC_SHARED(float, one);
  SHARED_ARRAY(float, other, 32);
  if (threadIdx.x == 3) one[3] = other[3] = 1;
  __syncthreads();
  out[threadIdx.x] = dynamic ? one[threadIdx.x] : other[threadIdx.x];
}

TEST_CASE("device memory, and shared memory in each block, is NaN until it is written") {
  const Restored restored;
  const OnDevice<float> out(32);
  CHECK(std::isnan(out.get()[31]));
  for (const bool dynamic : {true, false}) {
    for (int again = 0; again < 2; ++again) {
      launch(reads_unset, 2, 32, 32 * sizeof(float), nullptr, out.data(), dynamic);
      const std::vector<float> got = out.get();
      CHECK(got[3] == 1);
      CHECK(std::isnan(got[2]));
      CHECK(std::isnan(got[31]));
    }
  }
}

TEST_CASE("a device has no more memory than it says, and has it again after cudaFree") {
  const Restored restored;
  machine.memory_bytes = 1 << 20;
  void *most = nullptr, *more = nullptr;
  CHECK(cudaMalloc(&most, (1 << 20) + 1) == cudaErrorMemoryAllocation);
  for (int i = 0; i < 20; ++i) {  // more often than there are addresses for it
    OK(cudaMalloc(&most, 1 << 20));
    CHECK(cudaMalloc(&more, 1) == cudaErrorMemoryAllocation);
    CHECK(more == nullptr);
    OK(cudaFree(most));
  }
  CHECK(cudaFree(most) == cudaErrorInvalidValue);
  cudaGetLastError();
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
  CHECK(copy(device.data(), host.data(), 101, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  CHECK(copy(device.data() + 1, host.data(), 100, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  CHECK(copy(host.data(), device.data(), 101, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
  CHECK(copy(pinned.data(), device.data(), 100, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  CHECK(copy(device.data(), pinned.data(), 100, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
  CHECK(copy(host.data(), pinned.data(), 100, cudaMemcpyDeviceToDevice) == cudaErrorInvalidValue);
  CHECK(cudaMemsetAsync(device.data(), 0, 101, nullptr) == cudaErrorInvalidValue);
  CHECK(cudaMemset(host.data(), 0, 100) == cudaErrorInvalidValue);
  OK(cudaDeviceSynchronize());  // the copy that was taken
}

TEST_CASE("memory of the host is registered once, and a copy does not leave what is registered") {
  const Restored restored;
  std::vector<char> host(300);
  const Pinned<char> pinned(100);
  const OnDevice<char> device(200);
  const auto try_register = [](char* begin, std::size_t bytes) {
    return cudaHostRegister(begin, bytes, cudaHostRegisterDefault);
  };
  char* const middle = host.data() + 100;
  OK(try_register(middle, 100));
  CHECK(try_register(host.data(), 101) == cudaErrorHostMemoryAlreadyRegistered);
  CHECK(try_register(middle + 99, 1) == cudaErrorHostMemoryAlreadyRegistered);
  CHECK(try_register(pinned.data(), 100) == cudaErrorHostMemoryAlreadyRegistered);
  CHECK(try_register(device.data(), 100) == cudaErrorInvalidValue);
  CHECK(cudaMemcpy(device.data(), middle + 50, 51, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  OK(try_register(host.data(), 100));  // up to its neighbour
  OK(cudaMemcpy(device.data(), host.data(), 200, cudaMemcpyHostToDevice));
  CHECK(cudaHostUnregister(middle + 1) == cudaErrorHostMemoryNotRegistered);
  CHECK(cudaHostUnregister(pinned.data()) == cudaErrorHostMemoryNotRegistered);
  for (char* const begin : {host.data(), middle}) OK(cudaHostUnregister(begin));
  CHECK(cudaHostUnregister(middle) == cudaErrorHostMemoryNotRegistered);
}

TEST_CASE("a launch that no GPU takes is refused, and the device goes on") {
  const Restored restored;
  const OnDevice<int> x(std::vector<int>(4, 1));
  const auto refused = [&](dim3 grid, dim3 block, std::size_t shared) {
    launch(count_up, grid, block, shared, nullptr, x.data());
    return cudaGetLastError();
  };
  CHECK(refused(0, 4, 0) == cudaErrorInvalidConfiguration);
  CHECK(refused(1, 0, 0) == cudaErrorInvalidConfiguration);
  CHECK(refused(1, 1025, 0) == cudaErrorInvalidConfiguration);
  CHECK(refused(1, dim3(1, 1, 65), 0) == cudaErrorInvalidConfiguration);
  CHECK(refused(dim3(1, 65536), 4, 0) == cudaErrorInvalidConfiguration);
  CHECK(refused(1, 4, 48 * 1024) == cudaSuccess);
  CHECK(refused(1, 4, 48 * 1024 + 1) == cudaErrorInvalidValue);
  OK(cudaDeviceSynchronize());
  CHECK(x.get()[0] == 2);
}

TEST_CASE("a kernel that is given pageable memory breaks the device, and every call says so") {
  const Restored restored;
  std::vector<int> host(4, 1);
  const OnDevice<int> x(host);
  const Pinned<int> pinned(4);
  launch(count_up, 1, 4, 0, nullptr, x.data());
  launch(count_up, 1, 4, 0, nullptr, pinned.data());
  OK(cudaDeviceSynchronize());
  launch(count_up, 1, 4, 0, nullptr, host.data());
  launch(count_up, 1, 4, 0, nullptr, x.data());
  OK(cudaGetLastError());  // nobody knows yet
  CHECK(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
  for (int i = 0; i < 2; ++i) CHECK(cudaGetLastError() == cudaErrorIllegalAddress);
  void* pointer = nullptr;
  CHECK(cudaMalloc(&pointer, 8) == cudaErrorIllegalAddress);
  CHECK(host[0] == 1);
  plan_faults({});
  CHECK(x.get()[0] == 2);
}

}  // namespace

}  // namespace dtrun::memory_test
