// Picks the loops that this processor runs. CMake decides which copies exist.
#include "worker/vector/loops.h"

namespace dtrun::worker::vector {

namespace baseline {
extern const Loops kLoops;
}
#ifdef DTRUN_X86_LOOPS
namespace avx2 {
extern const Loops kLoops;
}
namespace avx512 {
extern const Loops kLoops;
}
#endif

InstructionSets<Loops> available_loops() {
#ifdef DTRUN_X86_LOOPS
  return runnable(&avx512::kLoops, &avx2::kLoops, &baseline::kLoops);
#else
  return runnable<Loops>(nullptr, nullptr, &baseline::kLoops);
#endif
}

const Loops& loops() {
  static const InstructionSets<Loops> found = available_loops();
  return *found.sets[0];
}

}  // namespace dtrun::worker::vector
