#include "tests/worker/device/cuda/cudnn/described_gpus.h"

#include <dlfcn.h>

#include <stdexcept>

// cuBLASLt, which some of cuDNN's engines ask for a handle, forgets one when there is no GPU.
extern "C" const char* __lsan_default_suppressions() {
  return "leak:libcublasLt.so";
}  // NOLINT: LeakSanitizer's name

namespace dtrun::test {
namespace {

struct Gpu {
  std::string name;
  int compute_capability;
  int multiprocessors;
  int shared_memory_per_block, clock_khz, memory_clock_khz, l2_bytes;
  long long memory_bytes;
};

// The keys are cuDNN's.
worker::cuda::PlanDevice described(const Gpu& gpu) {
  const auto entry = [](const std::string& key, long long value) {
    return "\"" + key + "\":" + std::to_string(value) + ",";
  };
  std::string json = R"({"deviceName":")" + gpu.name +
                     R"(","cudaDeviceId":0,"driverVer":13000,)"
                     R"("driverVersion":13000,"maxGridSize":[2147483647,65535,65535],)"
                     R"("maxBlockSize":[1024,1024,64],"regsPerBlock":65536,"warpSize":32,)"
                     R"("maxSharedMemoryPerBlock":49152,"reservedSharedMemoryPerBlock":1024,)"
                     R"("maxRegistersPerSM":65536,"maxCtasPerSM":32,"maxThreadsPerBlock":1024,)"
                     R"("maxThreadsPerSM":2048,"pciDeviceId":0,"isTccDriver":0,)";
  json += entry("deviceVer", gpu.compute_capability * 10) +
          entry("multiProcessorCount", gpu.multiprocessors) +
          entry("maxSharedMemoryPerBlockOptin", gpu.shared_memory_per_block) +
          entry("smClockRateKHz", gpu.clock_khz) + entry("memClockRateKHz", gpu.memory_clock_khz) +
          entry("l2CacheSize", gpu.l2_bytes) + entry("totalGlobalMem", gpu.memory_bytes) +
          R"("supportCoopLaunch":1})";
  return {
      .name = gpu.name, .compute_capability = gpu.compute_capability, .handle = nullptr, .description = json};
}

}  // namespace

const worker::cuda::Cudnn* cudnn_without_gpu() {
  // Loaded first, so that later requests for libcuda.so.1 get this library.
  static void* const driver = dlopen(DTRUN_NO_GPU_DRIVER, RTLD_NOW | RTLD_GLOBAL);
  if (driver == nullptr) throw std::runtime_error(dlerror());
  return worker::cuda::cudnn();
}

worker::cuda::PlanDevice a100() {
  return described({.name = "NVIDIA A100-SXM4-80GB",
                    .compute_capability = 80,
                    .multiprocessors = 108,
                    .shared_memory_per_block = 166912,
                    .clock_khz = 1410000,
                    .memory_clock_khz = 1593000,
                    .l2_bytes = 41943040,
                    .memory_bytes = 85095874560});
}

worker::cuda::PlanDevice h100() {
  return described({.name = "NVIDIA H100 80GB HBM3",
                    .compute_capability = 90,
                    .multiprocessors = 132,
                    .shared_memory_per_block = 232448,
                    .clock_khz = 1980000,
                    .memory_clock_khz = 2619000,
                    .l2_bytes = 52428800,
                    .memory_bytes = 85520809984});
}

worker::cuda::PlanDevice h200() {
  return described({.name = "NVIDIA H200",
                    .compute_capability = 90,
                    .multiprocessors = 132,
                    .shared_memory_per_block = 232448,
                    .clock_khz = 1980000,
                    .memory_clock_khz = 3201000,
                    .l2_bytes = 62914560,
                    .memory_bytes = 150754820096});
}

}  // namespace dtrun::test
