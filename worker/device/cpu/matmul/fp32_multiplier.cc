#include "worker/device/cpu/matmul/fp32_multiplier.h"

#include "worker/base/error.h"
#include "worker/base/runnable.h"

namespace dtrun::worker::matmul {
namespace {

const Kernels& kernels_of_processor() {
  const Kernels& fastest = worker::fastest<Kernels>();
  if (fastest.multiply != nullptr) return fastest;
  throw WorkerError(kExitConfig,
                    "this processor has no fused multiply-add (FMA), so it cannot give the bits that other "
                    "processors give; train on one that has AVX2 and FMA (2013 or newer)");
}

}  // namespace

InstructionSets<Kernels> available_kernels() { return runnable<Kernels>(); }

Fp32Multiplier::Fp32Multiplier() : kernels_(kernels_of_processor()), scratch_(kernels_.scratch) {}

}  // namespace dtrun::worker::matmul
