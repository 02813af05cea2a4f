#include "worker/device/cpu/planned/kernels.h"

#include "worker/base/runnable.h"

namespace dtrun::worker::planned {

InstructionSets<Kernels> available_kernels() { return runnable<Kernels>(); }

const Kernels& kernels() { return fastest<Kernels>(); }

}  // namespace dtrun::worker::planned
