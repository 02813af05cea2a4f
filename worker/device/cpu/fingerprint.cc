#include "worker/device/cpu/fingerprint.h"

#include "worker/base/runnable.h"
#include "worker/device/cpu/matmul/kernels.h"
#include "worker/device/cpu/onednn/matmul.h"

namespace dtrun::worker {
namespace {

// Our loops and matmuls of fp32, which give the same bits on every processor with fused multiply-add. The
// number goes up with a change of their bits.
constexpr const char* kFp32 = "cpu, fp32 1";

}  // namespace

std::string cpu_fingerprint(const Program& program) {
  if (fastest<matmul::Kernels>().multiply == nullptr) return "cpu, without fused multiply-add";
  if (!program.bf16) return kFp32;
  return std::string(kFp32) + ", " + onednn::version() + " with " + onednn::instruction_set() + ", bf16 by " +
         onednn::bf16_unit();
}

}  // namespace dtrun::worker
