#include "agent/core/gpu_use.h"

#include <algorithm>

namespace dtrun::agent {

std::optional<GpuUse> use_of(const Gpu& gpu, const GpuReading& reading) {
  const auto is_it = [&gpu](const PhysicalGpu& one) { return !gpu.pci.empty() && one.pci == gpu.pci; };
  const auto found = std::ranges::find_if(reading.gpus, is_it);
  if (found == reading.gpus.end() || found->lost) return std::nullopt;
  GpuUse use{.number = gpu.number,
             .temperature = found->temperature,
             .power = found->power,
             .throttled = found->throttled};
  if (gpu.memory > 0) use.memory_total = gpu.memory;
  if (gpu.mig) return use;
  use.utilization = found->utilization;
  if (found->memory > 0) use.memory_used = found->memory_used;
  return use;
}

}  // namespace dtrun::agent
