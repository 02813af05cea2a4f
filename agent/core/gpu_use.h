// What the driver says of the use of a worker's GPU, for the status. Pure.
#pragma once

#include <optional>

#include "agent/core/gpu.h"
#include "agent/core/vocabulary.h"

namespace dtrun::agent {

// Of the device that CUDA shows the worker, in this reading; nothing if the reading does not have it. An
// instance of a GPU has no numbers of its own but its memory's size: temperature, power and what slows it
// down are the GPU's.
std::optional<GpuUse> use_of(const Gpu& gpu, const GpuReading& reading);

}  // namespace dtrun::agent
