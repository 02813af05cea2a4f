#include "cmd/plan/one_worker.h"

#include "cmd/plan/config_file.h"
#include "proto/core/exit_codes.h"
#include "worker/config/bf16.h"
#include "worker/config/cuda.h"

namespace dtrun::cmd {

Result<DeviceChoice> device_of_one_worker(const std::string& path, std::span<const std::string> overrides,
                                          const Machine& machine) {
  ASSIGN_OR_RETURN(const ConfigFile file, read_job_config(path, overrides));
  const worker::JobConfig& config = file.config;
  const worker::DeviceType device = config.device;
  std::string obstacle;
  GpuSight result;
  if (device != worker::DeviceType::kCpu) {
    obstacle = worker::cuda_refusal(machine.worker_cuda);
    if (obstacle.empty()) {
      result = machine.gpus(device == worker::DeviceType::kCuda);
      obstacle = why_no_cuda(result, machine.worker_cuda);
    }
  }
  Result<DeviceChoice> choice = choose_device(device, obstacle, result.gpus, 1);
  if (!choice.ok()) return choice.status().within(path);
  if (choice.value().gpus.empty() && config.train.bf16 && !machine.bf16)
    return Status(kExitConfig, path + ": " + worker::bf16_refusal());
  return choice;
}

}  // namespace dtrun::cmd
