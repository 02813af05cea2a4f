// Loops that are compiled once per instruction set, so that one program is fast on any x86-64. Included by
// the loops themselves, so it has no function; runnable.h chooses.
#pragma once

namespace dtrun::worker {

// The copies of a table of functions. Each is defined in the file that is compiled for its instruction set,
// and declared beside the table; CMake compiles all but the first for x86-64 only.
template <typename Loops>
struct Copies {
  static const Loops baseline, avx2, avx512;
  static const Loops avx512_bf16;  // of matmuls alone, which have other bits
};

// The copies that this processor runs, the fastest first.
template <typename Loops>
struct InstructionSets {
  const Loops* sets[3];
  int count;
};

}  // namespace dtrun::worker
