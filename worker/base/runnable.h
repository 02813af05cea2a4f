// Which copies of loops (instruction_sets.h) run here.
#pragma once

#include <cstdlib>
#include <string>

#include "worker/base/error.h"
#include "worker/base/instruction_sets.h"

namespace dtrun::worker {

// DTRUN_CPU in the environment leaves out the sets above the one that it names, so that a person can see that
// they give the same bits; "avx512" leaves out AMX alone. Throws WorkerError (EX_CONFIG) for another name.
inline bool is_allowed(const std::string& set) {
  const char* const value = std::getenv("DTRUN_CPU");
  const std::string largest = value != nullptr ? value : "";
  if (largest.empty()) return true;
  if (largest == "avx512") return set != "amx";
  if (largest == "avx2") return set == "avx2" || set == "baseline";
  if (largest == "baseline") return set == "baseline";
  throw WorkerError(kExitConfig,
                    "DTRUN_CPU=" + largest + " in the environment: expected avx512, avx2 or baseline");
}

#if defined(__x86_64__)
inline bool runs_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw") && is_allowed("avx512");
}
#endif

// REQUIRES: each copy was compiled for no more instructions than are tested here.
template <typename Loops>
InstructionSets<Loops> runnable() {
  InstructionSets<Loops> found{};
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (runs_avx512()) found.sets[found.count++] = &Copies<Loops>::avx512;
  if (avx2 && is_allowed("avx2")) found.sets[found.count++] = &Copies<Loops>::avx2;
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
