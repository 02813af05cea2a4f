// What this machine can do at best, measured: the yardstick for what a job does on it.
#pragma once

#include <cstddef>
#include <string>

namespace dtrun::worker {

struct Ceilings {
  double flops = 0;  // a second, of matrix products of a size that suits the caches
  double bytes = 0;  // a second, of reading and writing vectors that together take as much memory as asked
};

// Of one of so many threads that all do the same at once. Takes about half a second. floats: of the vectors.
// bf16: the products are of that; REQUIRES: onednn::multiplies_bf16().
Ceilings measure_ceilings(int threads, std::size_t floats, bool bf16);

// The processor's name, and what matters of its instructions: "AMD EPYC, AVX-512, bf16".
std::string describe_processor();

}  // namespace dtrun::worker
