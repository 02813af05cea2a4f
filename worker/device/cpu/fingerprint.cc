#include "worker/device/cpu/fingerprint.h"

#include "proto/core/processor.h"
#include "worker/device/cpu/matmul/multiplier.h"
#include "worker/device/cpu/onednn/matmul.h"

namespace dtrun::worker {
namespace {

// Our loops and matmuls, which give the same bits on every processor with fused multiply-add, or with
// AVX512_BF16. Each number goes up with a change of their bits.
constexpr const char* kFp32 = "cpu, fp32 1";
constexpr const char* kBf16 = ", bf16 1 by AVX512_BF16";

}  // namespace

std::string cpu_fingerprint(const Program& program) {
  if (!matmul::multiplies_fp32()) return kCpuWithoutFma;
  if (!program.bf16) return kFp32;
  if (!onednn::has_amx()) return std::string(kFp32) + kBf16;
  return std::string(kFp32) + ", " + onednn::version() + " with " + onednn::instruction_set() +
         ", bf16 by AMX";
}

}  // namespace dtrun::worker
