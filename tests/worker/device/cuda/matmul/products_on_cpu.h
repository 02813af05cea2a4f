// The algorithms that a lane on the stand-in computes by.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "tests/cuda_on_cpu/counters.h"
#include "tests/worker/model/programs.h"
#include "worker/device/cuda_device.h"

namespace dtrun::worker::cuda {

// The stand-ins.
inline const std::string kPlatformOnCpu =
    "NVIDIA H100 (simulated), compute capability 9.0, 132 SMs, cuBLASLt 13.1.0";

using ProductsByAlgorithm = std::map<std::string, std::uint64_t>;

// The matmuls of one microbatch of training.
inline ProductsByAlgorithm products_of_a_step(const Program& program, int capacity) {
  const auto device = make_cuda_device(0);
  const auto lane = device->make_lane(program, capacity);
  const Problem problem(program, capacity);
  const Buffer parameters = device->arithmetic().allocate(Where::kDevice, program.size);
  const Buffer out = device->arithmetic().allocate(Where::kDevice, kStatisticsFloats + program.size);
  device->arithmetic().copy(lane->stream(), parameters.data(), problem.parameters.data(), program.size);
  lane->stream().wait();
  lane->parameters_changed(parameters.data());
  cuda_on_cpu::reset_counters();
  lane->train(problem.microbatch(capacity), out.data(), [](int) {});
  lane->stream().wait();
  return cuda_on_cpu::counters().products_by_algorithm;
}

}  // namespace dtrun::worker::cuda
