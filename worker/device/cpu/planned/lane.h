// A lane that carries out a plan (worker/model/plan.h), call by call: matmuls (matmuls.h), and the loops of
// kernels.h.
#pragma once

#include <memory>

#include "worker/device/device.h"
#include "worker/device/node_timer.h"

namespace dtrun::worker {

// Called on the thread that will run the lane. Throws WorkerError (EX_CONFIG) on a processor that cannot
// multiply as the program wants it.
std::unique_ptr<Lane> make_planned_lane(const Program& program, int capacity, NodeClock clock);

}  // namespace dtrun::worker
