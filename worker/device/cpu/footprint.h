// The layout that a CPU lane chooses for a program, and the memory that it takes: derived from the program
// alone, so that a launcher that links no math knows it too.
#pragma once

#include <cstddef>

#include "worker/model/program.h"

namespace dtrun::worker {

enum class CpuLayout : std::uint8_t {
  kPlanned,  // planned/: call by call
  kGrouped,  // grouped/: images, 16 samples side by side
};

// A function of program and capacity alone, so that every lane of a job decides the same.
CpuLayout cpu_layout(const Program& program, int capacity);

// Floats that a lane allocates for microbatches of `capacity` rows, weights and their gradient not counted.
// Throws WorkerError (EX_SOFTWARE) for a program that no lane can run.
std::size_t cpu_lane_floats(const Program& program, int capacity);

}  // namespace dtrun::worker
