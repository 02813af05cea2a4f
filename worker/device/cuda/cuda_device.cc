// Opens a GPU as a Device, or fails with one line that gives the reason.
#include "worker/device/cuda_device.h"

#include <cuda_runtime_api.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>

#include "proto/core/exit_codes.h"
#include "worker/base/error.h"
#include "worker/device/cuda/arithmetic.h"
#include "worker/device/cuda/cudnn_ops.h"
#include "worker/device/cuda/failure.h"
#include "worker/device/cuda/kernels/launches.h"
#include "worker/device/cuda/lane/lane.h"
#include "worker/device/cuda/matmul/matmuls.h"
#include "worker/device/cuda/nccl/communicator.h"
#include "worker/device/cuda/timing/nvtx.h"

namespace dtrun::worker {
namespace {

// Older GPUs lack bf16.
constexpr int kOldestMajor = 8;

// Environment variables that make a library compute in another precision than this program asks for.
constexpr const char* kChangingResults[] = {"NVIDIA_TF32_OVERRIDE", "CUBLAS_EMULATION_STRATEGY",
                                            "CUBLAS_EMULATE_SINGLE_PRECISION",
                                            "CUBLAS_EMULATE_DOUBLE_PRECISION"};

void refuse_variables() {
  for (const char* const name : kChangingResults) {
    const char* const value = std::getenv(name);
    if (value != nullptr && *value != '\0' && std::string(value) != "0")
      throw WorkerError(kExitConfig, std::string(name) + "=" + value +
                                         " is set, by which CUDA's libraries compute other bits: unset it");
  }
}

[[noreturn]] void no_gpu(const std::string& why) { throw WorkerError(kExitConfig, why); }

void refuse_missing(int gpu) {
  int count = 0;
  switch (const cudaError_t result = cudaGetDeviceCount(&count)) {
    case cudaSuccess:
      break;
    case cudaErrorNoDevice:
      no_gpu(
          "there is no GPU for this worker: the driver shows none (see CUDA_VISIBLE_DEVICES and nvidia-smi)");
    case cudaErrorInsufficientDriver: {
      int driver = 0, wanted = 0;
      cudaDriverGetVersion(&driver);
      cudaRuntimeGetVersion(&wanted);
      const auto text = [](int version) {
        return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
      };
      no_gpu(driver == 0
                 ? "there is no NVIDIA driver on this machine; install one, or set \"device\": \"cpu\""
                 : "the NVIDIA driver is too old: it is for CUDA " + text(driver) + ", and dtrun needs " +
                       text(wanted) + " or newer");
    }
    default:
      cuda::check(result, "looking for it");
  }
  if (gpu >= count)
    no_gpu("there is no GPU number " + std::to_string(gpu) + " for this worker: CUDA shows " +
           std::to_string(count) + " (see CUDA_VISIBLE_DEVICES); start fewer workers");
}

class CudaDevice final : public Device {
 public:
  CudaDevice(int gpu, std::string fingerprint, std::size_t memory, std::filesystem::path plans,
             const CudaLaunches& launches)
      : gpu_(gpu),
        fingerprint_(std::move(fingerprint)),
        memory_(memory),
        plans_(std::move(plans)),
        launches_(launches),
        use_(gpu == 0),
        arithmetic_(gpu) {}
  std::string name() const override { return "cuda"; }
  std::string fingerprint() const override {
    std::string own;
    for (const auto& [part, what] : use_.now().parts)
      if (what == cuda::kOwnKernels) own += (own.empty() ? "" : " and ") + part;
    return own.empty() ? fingerprint_ : fingerprint_ + ", own kernels for " + own;
  }
  DeviceUse use() const override { return use_.now(); }
  std::optional<DeviceMemory> memory() const override {
    return DeviceMemory{.used = arithmetic_.used(), .peak = arithmetic_.peak(), .total = memory_};
  }
  Arithmetic& arithmetic() override { return arithmetic_; }
  OpTimer& timer() override { return arithmetic_.timer(); }
  void enter_range(const char* name) override { cuda::nvtx::push(name); }
  void leave_range() override { cuda::nvtx::pop(); }
  std::unique_ptr<Lane> make_lane(const Program& program, int capacity) override {
    cuda::use_gpu(gpu_);
    return cuda::make_cuda_lane(program, capacity, gpu_, arithmetic_, plans_, launches_, use_);
  }
  std::unique_ptr<DeviceCommunicator> make_links(const CommunicatorBootstrap& peers) override {
    return cuda::make_nccl_communicator(gpu_, peers, use_);
  }

 private:
  const int gpu_;
  const std::string fingerprint_;  // without the part that depends on the program
  const std::size_t memory_;       // bytes
  const std::filesystem::path plans_;
  const CudaLaunches launches_;
  cuda::UseRecord use_;
  cuda::CudaArithmetic arithmetic_;
};

}  // namespace

std::unique_ptr<Device> make_cuda_device(int gpu, std::filesystem::path plans, const CudaLaunches& launches) {
  refuse_variables();
  cuda::check_nccl_environment();
  refuse_missing(gpu);
  cuda::use_gpu(gpu);
  cudaDeviceProp properties{};
  cuda::check(cudaGetDeviceProperties(&properties, gpu), "asking what it is");
  if (properties.major < kOldestMajor)
    no_gpu(std::string(properties.name) +
           " is too old a GPU: dtrun needs compute capability 8.0 (A100) or newer");
  const std::string platform = cuda::platform_of(properties), cudnn = cuda::cudnn_version();
  const std::string fingerprint = platform + (cudnn.empty() ? "" : ", cuDNN " + cudnn);
  return std::make_unique<CudaDevice>(gpu, fingerprint, properties.totalGlobalMem, std::move(plans),
                                      launches);
}

}  // namespace dtrun::worker
