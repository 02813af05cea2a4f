// Chooses among loops that are compiled once per instruction set, so that one program is fast on any x86-64,
// the copies that this processor runs.
#pragma once

namespace dtrun::worker {

// The copies of a table of functions. Each is defined in the file that is compiled for its instruction set,
// and declared beside the table; CMake compiles the last two for x86-64 only.
template <typename Loops>
struct Copies {
  static const Loops baseline, avx2, avx512;
};

// The copies that this processor runs, the fastest first.
template <typename Loops>
struct InstructionSets {
  const Loops* sets[3];
  int count;
};

// REQUIRES: each copy was compiled for no more instructions than are tested here.
template <typename Loops>
InstructionSets<Loops> runnable() {
  InstructionSets<Loops> found{};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw"))
    found.sets[found.count++] = &Copies<Loops>::avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    found.sets[found.count++] = &Copies<Loops>::avx2;
#endif
  found.sets[found.count++] = &Copies<Loops>::baseline;
  return found;
}

template <typename Loops>
const Loops& fastest() {
  static const InstructionSets<Loops> found = runnable<Loops>();
  return *found.sets[0];
}

}  // namespace dtrun::worker
