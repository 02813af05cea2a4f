// The peak rates of this machine's processor.
#pragma once

#include <cstddef>
#include <string>

#include "worker/device/op_timer.h"

namespace dtrun::worker {

// The average rates of one of `threads` threads that all work at the same time: on matmuls of a size that
// suits the caches, and on reading and writing vectors of `floats` floats in all. Takes about half a second.
// bf16: measures matmuls of bf16; REQUIRES: this processor multiplies bf16.
Ceilings measure_ceilings(int threads, std::size_t floats, bool bf16);

// The processor's name, and its instruction sets that matter here: "AMD EPYC, AVX-512, bf16".
std::string describe_processor();

}  // namespace dtrun::worker
