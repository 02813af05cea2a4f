// Planned faults, errors and what the machine says of itself.
#include <cstring>
#include <string>

#include "tests/cuda_on_cpu/device_test.h"

namespace {

using namespace cuda_on_cpu;

__global__ void count_up(int* x) { ++x[threadIdx.x]; }

TEST_CASE("a planned allocation fails, and no other") {
  const Restored restored;
  plan_faults({.allocation = 2, .host_allocation = 1});
  void *first = nullptr, *second = nullptr, *third = nullptr, *pinned = nullptr;
  CHECK(cudaMalloc(&first, 8) == cudaSuccess);
  CHECK(cudaMalloc(&second, 8) == cudaErrorMemoryAllocation);
  CHECK(cudaMalloc(&third, 8) == cudaSuccess);
  CHECK(cudaMallocHost(&pinned, 8) == cudaErrorMemoryAllocation);
  CHECK(cudaMallocHost(&pinned, 8) == cudaSuccess);
  CHECK(second == nullptr);
  OK(cudaFree(first));
  OK(cudaFree(third));
  OK(cudaFreeHost(pinned));
}

TEST_CASE("a broken device does no more, and every call says why") {
  const Restored restored;
  const TestStream stream, other;
  const TestEvent event;
  const OnDevice<int> x(std::vector<int>(4, 1));
  plan_faults({.launch = 2, .launch_error = cudaErrorECCUncorrectable});
  reset_counters();
  for (int i = 0; i < 3; ++i) launch(count_up, 1, 4, 0, stream, x.data());
  launch(count_up, 1, 4, 0, other, x.data());
  OK(cudaGetLastError());  // nobody knows yet
  CHECK(cudaStreamSynchronize(stream) == cudaErrorECCUncorrectable);
  CHECK(counters().kernels == 2);
  for (int i = 0; i < 2; ++i) CHECK(cudaGetLastError() == cudaErrorECCUncorrectable);
  CHECK(cudaStreamSynchronize(other) == cudaErrorECCUncorrectable);
  CHECK(cudaDeviceSynchronize() == cudaErrorECCUncorrectable);
  CHECK(cudaEventRecord(event, stream) == cudaErrorECCUncorrectable);
  void* pointer = nullptr;
  CHECK(cudaMalloc(&pointer, 8) == cudaErrorECCUncorrectable);
  launch(count_up, 1, 4, 0, other, x.data());
  CHECK(cudaPeekAtLastError() == cudaErrorECCUncorrectable);
  int count = 0;
  CHECK(cudaGetDeviceCount(&count) == cudaErrorECCUncorrectable);
  plan_faults({});
  cudaGetLastError();
  CHECK(x.get()[0] == 2);  // the first kernel's
}

TEST_CASE("without a driver, or a device, every call says so") {
  const Restored restored;
  int count = -1;
  plan_faults({.every_call = cudaErrorInsufficientDriver});
  CHECK(cudaGetDeviceCount(&count) == cudaErrorInsufficientDriver);
  CHECK(count == 0);
  plan_faults({});
  machine.gpus.clear();
  CHECK(cudaGetDeviceCount(&count) == cudaErrorNoDevice);
  CHECK(cudaSetDevice(0) == cudaErrorNoDevice);
  machine.gpus = {0};
  OK(cudaGetDeviceCount(&count));
  CHECK(count == 1);
}

TEST_CASE("faults are read from text") {
  const Faults faults =
      faults_of("allocation:3,host-allocation:4,host-register:801,launch:10:214,every-call:35");
  CHECK(faults.allocation == 3);
  CHECK(faults.host_allocation == 4);
  CHECK(faults.host_register == cudaErrorNotSupported);
  CHECK(faults.launch == 10);
  CHECK(faults.launch_error == cudaErrorECCUncorrectable);
  CHECK(faults.every_call == cudaErrorInsufficientDriver);
}

TEST_CASE("a launch that no GPU takes is refused, and the device goes on") {
  const Restored restored;
  const OnDevice<int> x(std::vector<int>(4, 1));
  const auto refused = [&](dim3 grid, dim3 block, std::size_t shared) {
    launch(count_up, grid, block, shared, nullptr, x.data());
    const cudaError_t error = cudaGetLastError();
    CHECK(cudaGetLastError() == cudaSuccess);
    return error;
  };
  CHECK(refused(0, 4, 0) == cudaErrorInvalidConfiguration);
  CHECK(refused(1, 0, 0) == cudaErrorInvalidConfiguration);
  CHECK(refused(1, 1025, 0) == cudaErrorInvalidConfiguration);
  CHECK(refused(1, dim3(1, 1, 65), 0) == cudaErrorInvalidConfiguration);
  CHECK(refused(dim3(1, 65536), 4, 0) == cudaErrorInvalidConfiguration);
  CHECK(refused(1, 4, 48 * 1024) == cudaSuccess);
  CHECK(refused(1, 4, 48 * 1024 + 1) == cudaErrorInvalidValue);
  OK(cudaFuncSetAttribute(count_up, cudaFuncAttributeMaxDynamicSharedMemorySize, 227 * 1024));
  CHECK(refused(1, 4, 227 * 1024) == cudaSuccess);
  CHECK(refused(1, 4, 227 * 1024 + 1) == cudaErrorInvalidValue);
  CHECK(cudaFuncSetAttribute(count_up, cudaFuncAttributeMaxDynamicSharedMemorySize, 227 * 1024 + 1) ==
        cudaErrorInvalidValue);
  cudaGetLastError();
  OK(cudaDeviceSynchronize());
  CHECK(x.get()[0] == 3);
}

TEST_CASE("a kernel that is given pageable memory breaks the device, if that is not allowed") {
  const Restored restored;
  settings.pageable_memory = false;
  std::vector<int> host(4, 1);
  const OnDevice<int> x(host);
  const Pinned<int> pinned(4);
  launch(count_up, 1, 4, 0, nullptr, x.data());
  launch(count_up, 1, 4, 0, nullptr, pinned.data());
  OK(cudaDeviceSynchronize());
  launch(count_up, 1, 4, 0, nullptr, host.data());
  CHECK(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
  CHECK(host[0] == 1);
  plan_faults({});
  CHECK(x.get()[0] == 2);
}

TEST_CASE("a device says what it is") {
  const Restored restored;
  machine.gpus = {0, 3};
  cudaDeviceProp properties;
  OK(cudaGetDeviceProperties(&properties, 1));
  CHECK(std::string(properties.name) == "NVIDIA H100 (simulated)");
  CHECK(properties.major == 9);
  CHECK(properties.multiProcessorCount == 132);
  CHECK(properties.totalGlobalMem == machine.memory_bytes);
  int value = 0;
  OK(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 0));
  CHECK(value == 132);
  CHECK(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 2) == cudaErrorInvalidDevice);
  char id[16];
  OK(cudaDeviceGetPCIBusId(id, sizeof id, 1));
  CHECK(std::string(id) == "0000:3E:00.0");
  CHECK(cudaDeviceGetPCIBusId(id, 12, 1) == cudaErrorInvalidValue);
  OK(cudaRuntimeGetVersion(&value));
  CHECK(value == CUDART_VERSION);
  OK(cudaDriverGetVersion(&value));
  CHECK(value == CUDART_VERSION);
}

TEST_CASE("errors have their names and words") {
  CHECK(std::string(cudaGetErrorName(cudaErrorIllegalAddress)) == "cudaErrorIllegalAddress");
  CHECK(std::string(cudaGetErrorString(cudaErrorIllegalAddress)) ==
        "an illegal memory access was encountered");
  CHECK(std::string(cudaGetErrorName(static_cast<cudaError_t>(12345))) == "unrecognized error code");
}

}  // namespace
