// Picks the kernels that this processor runs. CMake decides which sets exist (x86-64: three; else: one).
#include "worker/device/cpu/grouped/kernels.h"

namespace dtrun::worker::grouped {

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

InstructionSets<Kernels> available_kernels() {
#ifdef DTRUN_X86_KERNELS
  return runnable(&avx512::kKernels, &avx2::kKernels, &baseline::kKernels);
#else
  return runnable<Kernels>(nullptr, nullptr, &baseline::kKernels);
#endif
}

const Kernels& kernels() {
  static const InstructionSets<Kernels> found = available_kernels();
  return *found.sets[0];
}

}  // namespace dtrun::worker::grouped
