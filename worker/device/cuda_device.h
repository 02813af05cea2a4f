// The GPUs of this process. Defined by cuda/cuda_device.cc, or by cuda_unavailable.cc in a build without
// CUDA.
#pragma once

#include <filesystem>
#include <memory>

#include "worker/device/device.h"

namespace dtrun::worker {

// The ways in which a lane launches its work. They change the time alone, no bits. Tests choose others than
// these.
struct CudaLaunches {
  bool graphs = true;    // a microbatch's operations in one go
  int side_streams = 1;  // of weight gradients
};

// Makes GPU number `gpu` of those that CUDA_VISIBLE_DEVICES leaves. Throws WorkerError: EX_CONFIG if there is
// no such GPU here, no driver, a library is missing, or the environment has a variable that changes results;
// EX_OSERR if the GPU does not answer. `plans`: the file that keeps cuDNN's plans for the next start, which
// any worker of this kind of GPU may read and write at any time; not made if there are no plans.
std::unique_ptr<Device> make_cuda_device(int gpu, std::filesystem::path plans = {},
                                         const CudaLaunches& launches = {});

// Measures the GPU's peak rates: with a large square matmul in bf16 or fp32, and with a copy within its
// memory, which counts as read and written. Takes a second or two, and much of the memory that is free.
// Throws WorkerError as above.
Ceilings measure_cuda_ceilings(int gpu, bool bf16);

}  // namespace dtrun::worker
