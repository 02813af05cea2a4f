// Chooses the device that the built-in trainer's workers of this node compute on, from the config's key
// "device", the abilities of this build and job, and the machine's GPUs. Pure.
#pragma once

#include <string>
#include <vector>

#include "agent/core/gpu.h"
#include "proto/core/status.h"
#include "worker/config/choices.h"

namespace dtrun::cmd {

// Why workers cannot use these GPUs; empty: they can. `built_for`: the CUDA version of this build.
std::string why_no_cuda(const GpuSight& result, int built_for);

struct DeviceChoice {
  std::vector<Gpu> gpus = {};  // by local rank; empty: the CPU
  std::string why = {};        // "cuda, 8 GPUs (NVIDIA H200)", "cpu, no GPU here (no NVIDIA driver)"
};

// `obstacle`: why workers cannot use CUDA at all; empty: they can use `gpus`, one each. EX_CONFIG if kCuda
// was asked for and cannot be had.
Result<DeviceChoice> choose_device(worker::DeviceType device, const std::string& obstacle,
                                   const std::vector<Gpu>& gpus, int workers);

}  // namespace dtrun::cmd
