// A lane's schedule and its memory.
#pragma once

#include <cstddef>

#include "worker/device/cuda/arithmetic.h"
#include "worker/device/cuda/matmul/matmuls.h"
#include "worker/device/cuda/steps.h"
#include "worker/device/cuda/use.h"
#include "worker/model/program.h"

namespace dtrun::worker::cuda {

// The schedule of a program, for this plan, with matmuls that are right on this GPU: an epilogue with which a
// matmul is wrong becomes a step of its own.
Schedule make_checked_schedule(const Program& program, int capacity, const PlanFor& plan, int side_streams,
                               Matmuls& matmuls, CudaArithmetic& arithmetic, CudaStream& stream,
                               UseRecord& use);

// Throws WorkerError (EX_CONFIG) if there is no room, with the number of samples that fit.
Buffer make_arena(const Program& program, int capacity, std::size_t bytes, CudaArithmetic& arithmetic);

}  // namespace dtrun::worker::cuda
