// The memory of a device that has its own.
#pragma once

#include <cstdint>

namespace dtrun::worker {

// Bytes.
struct DeviceMemory {
  std::uint64_t used = 0;
  std::uint64_t peak = 0;   // the most that was used since the worker began
  std::uint64_t total = 0;  // that the device has
};

}  // namespace dtrun::worker
