// A lane of the CPU device over a given graph: for the device itself, and for tests that compare graphs.
#pragma once

#include <memory>

#include "worker/device/cpu/graph.h"
#include "worker/device/device.h"

namespace dtrun::worker {

std::unique_ptr<Lane> make_cpu_lane(const Program& program, int capacity, std::unique_ptr<CpuGraph> graph);

}  // namespace dtrun::worker
