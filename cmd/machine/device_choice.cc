#include "cmd/machine/device_choice.h"

#include <algorithm>

#include "proto/core/exit_codes.h"
#include "proto/core/text.h"

namespace dtrun::cmd {
namespace {

// Why these workers cannot have one of `gpus` each.
std::string misfit(const std::vector<Gpu>& gpus, std::size_t workers) {
  if (gpus.size() < workers)
    return counted(std::ssize(gpus), "GPU") + " for " +
           counted(static_cast<std::int64_t>(workers), "worker") + ", and each needs its own";
  const auto end = gpus.begin() + static_cast<std::ptrdiff_t>(workers);
  const auto other =
      std::find_if(gpus.begin(), end, [&](const Gpu& gpu) { return gpu.name != gpus[0].name; });
  if (other == end) return "";
  return "GPU " + std::to_string(gpus[0].number) + " is " + gpus[0].name + ", GPU " +
         std::to_string(other->number) + " is " + other->name +
         ": other kinds give other bits; choose one by CUDA_VISIBLE_DEVICES";
}

}  // namespace

// A driver runs programs of its own major version of CUDA, and of older ones.
std::string why_no_cuda(const GpuSight& result, int built_for) {
  if (result.gpus.empty()) return "no GPU here (" + result.why_none + ")";
  if (result.cuda == 0 || result.cuda / 1000 >= built_for / 1000) return "";
  return "the NVIDIA driver is too old (" + result.driver + ", for CUDA " + cuda_version_text(result.cuda) +
         "; this dtrun needs " + std::to_string(built_for / 1000) + ".0 or newer)";
}

Result<DeviceChoice> choose_device(worker::DeviceType device, const std::string& obstacle,
                                   const std::vector<Gpu>& gpus, int workers) {
  if (device == worker::DeviceType::kCpu) return DeviceChoice{.gpus = {}, .why = "cpu, as /device says"};
  const auto count = static_cast<std::size_t>(workers);
  const std::string problem = obstacle.empty() ? misfit(gpus, count) : obstacle;
  if (problem.empty()) {
    DeviceChoice choice{.gpus = {gpus.begin(), gpus.begin() + workers}, .why = {}};
    choice.why = "cuda, " + gpu_count_text(choice.gpus);
    return choice;
  }
  if (device == worker::DeviceType::kCuda) return Status(kExitConfig, "/device is \"cuda\", but " + problem);
  return DeviceChoice{.gpus = {}, .why = "cpu, " + problem};
}

}  // namespace dtrun::cmd
