#include "worker/device/cpu/matmul/multiplier.h"

#include "worker/base/error.h"
#include "worker/base/runnable.h"

namespace dtrun::worker::matmul {
namespace {

const Kernels& kernels_of_processor() {
  if (multiplies_fp32()) return fastest<Kernels>();
  throw WorkerError(kExitConfig,
                    "this processor has no fused multiply-add (FMA), so it cannot give the bits that other "
                    "processors give; train on one that has AVX2 and FMA (2013 or newer)");
}

}  // namespace

bool multiplies_fp32() { return fastest<Kernels>().multiply != nullptr; }

InstructionSets<Kernels> available_kernels() { return runnable<Kernels>(); }

const Kernels* bf16_kernels() {
#ifdef __x86_64__
  if (runs_avx512() && __builtin_cpu_supports("avx512bf16")) return &Copies<Kernels>::avx512_bf16;
#endif
  return nullptr;
}

Multiplier::Multiplier() : Multiplier(kernels_of_processor()) {}

}  // namespace dtrun::worker::matmul
