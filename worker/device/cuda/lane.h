#pragma once

#include <memory>

#include "worker/device/cuda/arithmetic.h"
#include "worker/device/device.h"

namespace dtrun::worker::cuda {

// `arithmetic` is of GPU number `gpu`, and outlives the lane. Throws WorkerError with EX_CONFIG if there is
// no room for the lane's memory.
std::unique_ptr<Lane> make_cuda_lane(const Program& program, int capacity, int gpu,
                                     CudaArithmetic& arithmetic);

}  // namespace dtrun::worker::cuda
