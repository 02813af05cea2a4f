#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "worker/device/cuda/algorithms.h"
#include "worker/device/cuda/arithmetic.h"
#include "worker/device/cuda/use.h"
#include "worker/device/device.h"

namespace dtrun::worker::cuda {

// `arithmetic` is of GPU number `gpu`, and outlives the lane. `algorithms`: the table's for this platform.
// `plans`: the file that keeps cuDNN's plans, or "". Attention in bf16 and convolutions are cuDNN's where it
// is there and computes the same as the own kernels. `use` is told of that, and of what else has a faster and
// a slower way; it outlives the lane. Throws WorkerError with EX_CONFIG if there is no room for the lane's
// memory, or cuBLASLt multiplies wrong.
std::unique_ptr<Lane> make_cuda_lane(const Program& program, int capacity, int gpu,
                                     CudaArithmetic& arithmetic, const Algorithms& algorithms,
                                     const std::filesystem::path& plans, UseRecord& use);

}  // namespace dtrun::worker::cuda
