// Picks the kernels that this processor runs. Which sets exist is decided by CMake (x86-64: three; else:
// one).
#include "worker/device/cpu/planned/kernels.h"

namespace dtrun::worker::planned {

namespace baseline {
extern const Kernels kKernels;
}

#ifdef DTRUN_X86_KERNELS
namespace avx2 {
extern const Kernels kKernels;
}
namespace avx512 {
extern const Kernels kKernels;
}
#endif

KernelSets available_kernels() {
  KernelSets found{};
#ifdef DTRUN_X86_KERNELS
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw"))
    found.sets[found.count++] = &avx512::kKernels;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    found.sets[found.count++] = &avx2::kKernels;
#endif
  found.sets[found.count++] = &baseline::kKernels;
  return found;
}

const Kernels& kernels() {
  static const KernelSets found = available_kernels();
  return *found.sets[0];
}

}  // namespace dtrun::worker::planned
