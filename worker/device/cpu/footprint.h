// How a CPU lane lays out a program's values, and the memory that it takes: derived from the program alone,
// so that a launcher that links no math knows it too.
#pragma once

#include <cstddef>

#include "worker/model/plan.h"
#include "worker/model/program.h"

namespace dtrun::worker {

// In groups of samples (grouped/kernels.h), or one sample after the other. A function of program and capacity
// alone, so that every lane of a job decides the same. `forward_only`: for a teacher.
PlanFor plan_for_cpu(const Program& program, int capacity, bool forward_only = false);

// Floats that a lane allocates for the values of microbatches of `capacity` rows.
// Throws WorkerError (EX_SOFTWARE) for a program that no lane can run.
std::size_t cpu_lane_floats(const Program& program, int capacity, bool forward_only = false);

}  // namespace dtrun::worker
