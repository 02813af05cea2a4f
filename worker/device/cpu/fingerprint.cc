#include "worker/device/cpu/fingerprint.h"

#include "worker/device/cpu/footprint.h"
#include "worker/device/cpu/grouped/kernels.h"
#include "worker/device/cpu/onednn/matmul.h"
#include "worker/device/cpu/planned/kernels.h"

namespace dtrun::worker {
namespace {

// The instruction sets of grouped/ differ in one thing: whether a multiplication and its addition are rounded
// once.
std::string grouped_loops() {
  return std::string("loops ") + (grouped::kernels().fused ? "with" : "without") + " fused multiply-add";
}

std::string planned_loops() { return planned::kernels().instruction_set + std::string(" loops"); }

}  // namespace

std::string cpu_fingerprint(const Program& program, int capacity) {
  const std::string onednn = onednn::version() + " with " + onednn::instruction_set();
  switch (cpu_layout(program, capacity)) {
    case CpuLayout::kGrouped:
      return "cpu, " + grouped_loops();
    case CpuLayout::kOneDnn:
      return "cpu, " + onednn;
    case CpuLayout::kPlanned:
      break;
  }
  return "cpu, " + planned_loops() + ", " + onednn + (program.bf16 ? ", bf16 by " + onednn::bf16_unit() : "");
}

}  // namespace dtrun::worker
