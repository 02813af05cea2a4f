#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "worker/device/cuda/arithmetic.h"
#include "worker/device/cuda/use.h"
#include "worker/device/cuda_device.h"
#include "worker/device/device.h"

namespace dtrun::worker::cuda {

// `arithmetic`: that of GPU number `gpu`. `plans`: the file that keeps cuDNN's plans, or "". cuDNN computes
// attention in bf16 and convolutions, if it is available and agrees with the own kernels; `use` records that,
// and other choices between faster and slower implementations. Throws WorkerError with EX_CONFIG if there is
// no room for the lane's memory, or cuBLASLt multiplies wrong. REQUIRES: `arithmetic` and `use` outlive the
// lane.
std::unique_ptr<Lane> make_cuda_lane(const Program& program, int capacity, int gpu,
                                     CudaArithmetic& arithmetic, const std::filesystem::path& plans,
                                     const CudaLaunches& launches, UseRecord& use);

}  // namespace dtrun::worker::cuda
