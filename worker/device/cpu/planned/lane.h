// A lane that carries out a plan (worker/model/plan.h), call by call: matmuls by oneDNN, the rest by
// the loops of kernels.h. For programs without images.
#pragma once

#include <memory>

#include "worker/device/device.h"
#include "worker/device/node_timer.h"

namespace dtrun::worker {

// Called on the thread that will run the lane. Throws WorkerError: EX_SOFTWARE for a program with an
// operation on images, EX_CONFIG for a bf16 program on a processor that cannot multiply bf16.
std::unique_ptr<Lane> make_planned_lane(const Program& program, int capacity, NodeClock clock);

}  // namespace dtrun::worker
