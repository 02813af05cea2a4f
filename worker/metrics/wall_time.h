#pragma once

#include <chrono>

namespace dtrun::worker {

// Seconds since 1970, for people only.
inline double wall_time() {
  const auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<double>(std::chrono::duration_cast<std::chrono::milliseconds>(since_1970).count()) /
         1000;
}

}  // namespace dtrun::worker
