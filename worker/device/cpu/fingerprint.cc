#include "worker/device/cpu/fingerprint.h"

#include "proto/core/processor.h"
#include "worker/device/cpu/matmul/fp32_multiplier.h"
#include "worker/device/cpu/onednn/matmul.h"

namespace dtrun::worker {
namespace {

// Our loops and matmuls of fp32, which give the same bits on every processor with fused multiply-add. The
// number goes up with a change of their bits.
constexpr const char* kFp32 = "cpu, fp32 1";

}  // namespace

std::string cpu_fingerprint(const Program& program) {
  if (!matmul::multiplies_fp32()) return kCpuWithoutFma;
  if (!program.bf16) return kFp32;
  return std::string(kFp32) + ", " + onednn::version() + " with " + onednn::instruction_set() + ", bf16 by " +
         onednn::bf16_unit();
}

}  // namespace dtrun::worker
