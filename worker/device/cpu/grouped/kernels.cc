#include "worker/device/cpu/grouped/kernels.h"

#include "worker/base/runnable.h"

namespace dtrun::worker::grouped {

InstructionSets<Kernels> available_kernels() { return runnable<Kernels>(); }

const Kernels& kernels() { return fastest<Kernels>(); }

}  // namespace dtrun::worker::grouped
