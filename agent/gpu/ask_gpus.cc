#include "agent/gpu/ask_gpus.h"

#include <unistd.h>

#include <cstdlib>

#include "agent/gpu/reading_json.h"
#include "proto/base/answer.h"

namespace dtrun::agent {

// WSL has its GPUs behind /dev/dxg.
bool driver_may_be_here() {
  for (const char* sign : {"/dev/nvidiactl", "/proc/driver/nvidia", "/dev/dxg"})
    if (access(sign, F_OK) == 0) return true;
  return std::getenv("DTRUN_CUDA_LIBRARY_PATH") != nullptr;
}

GpuReading ask_gpus(const std::vector<std::string>& command, std::chrono::milliseconds limit) {
  const CommandAnswer answer = answer_of(command, "", limit);
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(limit).count();
  switch (answer.end) {
    case CommandAnswer::kNoDescriptors:
      return {.gpus = {}, .failure = "no descriptors are left to ask its driver"};
    case CommandAnswer::kNotStarted:
      return {.gpus = {}, .failure = "cannot start " + command[0] + " to ask its driver"};
    case CommandAnswer::kSilent:
      return {.gpus = {},
              .failure = "the NVIDIA driver did not answer for " + std::to_string(seconds) + " s"};
    case CommandAnswer::kAnswered:
      break;
  }
  if (auto reading = reading_of(answer.text)) return *std::move(reading);
  return {.gpus = {}, .failure = "asking the NVIDIA driver failed"};
}

}  // namespace dtrun::agent
