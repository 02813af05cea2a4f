// The GPUs of this machine, read by a process of its own: a broken driver may never answer, and a process
// that waits for it cannot be ended.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "agent/core/gpu.h"

namespace dtrun::agent {

// True if the driver left a sign that it may be here, so that it is worth asking.
bool driver_may_be_here();

// Starts `command`, which prints a reading (reading_json.h), and waits for it, for `limit` at most. The
// reading's failure says what went wrong.
GpuReading ask_gpus(const std::vector<std::string>& command, std::chrono::milliseconds limit);

}  // namespace dtrun::agent
