// Chooses among loops that are compiled once per instruction set, so that one program is fast on any x86-64,
// the copies that this processor runs.
#pragma once

namespace dtrun::worker {

// The fastest first. Loops: a table of functions.
template <typename Loops>
struct InstructionSets {
  const Loops* sets[3];
  int count;
};

// REQUIRES: each copy was compiled for no more instructions than are tested here. nullptr: there is no such
// copy.
template <typename Loops>
InstructionSets<Loops> runnable(const Loops* avx512, const Loops* avx2, const Loops* baseline) {
  InstructionSets<Loops> found{};
#if defined(__x86_64__)
  if (avx512 != nullptr && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw"))
    found.sets[found.count++] = avx512;
  if (avx2 != nullptr && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    found.sets[found.count++] = avx2;
#endif
  found.sets[found.count++] = baseline;
  return found;
}

}  // namespace dtrun::worker
