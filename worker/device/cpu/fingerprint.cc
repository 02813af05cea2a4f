#include "worker/device/cpu/fingerprint.h"

#include "worker/device/cpu/footprint.h"
#include "worker/device/cpu/grouped/kernels.h"
#include "worker/device/cpu/onednn/matmul.h"

namespace dtrun::worker {
namespace {

// Our loops and matmuls of fp32, which give the same bits on every processor with fused multiply-add. The
// number goes up with a change of their bits.
constexpr const char* kFp32 = "cpu, fp32 1";

}  // namespace

std::string cpu_fingerprint(const Program& program, int capacity) {
  const std::string onednn = onednn::version() + " with " + onednn::instruction_set();
  switch (cpu_layout(program, capacity)) {
    case CpuLayout::kGrouped:
      return grouped::kernels().fused ? kFp32 : "cpu, loops without fused multiply-add";
    case CpuLayout::kOneDnn:
      return "cpu, " + onednn;
    case CpuLayout::kPlanned:
      break;
  }
  return std::string(kFp32) + (program.bf16 ? ", " + onednn + ", bf16 by " + onednn::bf16_unit() : "");
}

}  // namespace dtrun::worker
