// A lane that carries out a schedule (worker/schedule/), step by step: matmuls (matmuls.h), the loops of
// kernels.h, and for values in groups of samples those of grouped/.
#pragma once

#include <memory>

#include "worker/device/device.h"
#include "worker/device/lane_timer.h"
#include "worker/model/plan.h"

namespace dtrun::worker {

// `layout`: plan_for_cpu() (footprint.h), or another one in tests; `of_teacher`: the same of the program's
// teacher, if there is one. Called on the thread that will run the
// lane. Throws WorkerError (EX_CONFIG) on a processor that cannot multiply as the program wants it.
std::unique_ptr<Lane> make_planned_lane(const Program& program, int capacity, const PlanFor& layout,
                                        LaneClock clock, const PlanFor& of_teacher = {});

}  // namespace dtrun::worker
