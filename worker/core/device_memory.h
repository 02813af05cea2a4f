// The memory of a device that has its own.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

namespace dtrun::worker {

// Bytes.
struct DeviceMemory {
  std::uint64_t used = 0;
  std::uint64_t peak = 0;   // the most that was used since the worker began
  std::uint64_t total = 0;  // that the device has
};

// "61.2 GiB": as GPU makers count, and dtrun's own lines.
inline std::string in_gibibytes(std::uint64_t bytes) {
  const double mebibytes = static_cast<double>(bytes) / (1 << 20);
  char text[32];
  if (mebibytes < 1024)
    std::snprintf(text, sizeof text, "%.1f MiB", mebibytes);
  else
    std::snprintf(text, sizeof text, "%.1f GiB", mebibytes / 1024);
  return text;
}

}  // namespace dtrun::worker
