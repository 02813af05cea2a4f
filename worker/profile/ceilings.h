// What this machine's processor can do at best.
#pragma once

#include <cstddef>
#include <string>

#include "worker/device/op_timer.h"

namespace dtrun::worker {

// Of one of so many threads that all do the same at once: products of a size that suits the caches, and
// vectors of together so many floats, read and written. Takes about half a second. bf16: the products are of
// that; REQUIRES: onednn::multiplies_bf16().
Ceilings measure_ceilings(int threads, std::size_t floats, bool bf16);

// The processor's name, and what matters of its instructions: "AMD EPYC, AVX-512, bf16".
std::string describe_processor();

}  // namespace dtrun::worker
