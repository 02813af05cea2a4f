#include "worker/vector/loops.h"

#include "worker/base/runnable.h"

namespace dtrun::worker::vector {

InstructionSets<Loops> available_loops() { return runnable<Loops>(); }

const Loops& loops() { return fastest<Loops>(); }

}  // namespace dtrun::worker::vector
