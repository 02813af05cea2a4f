// Clocks as numbers. Decisions use the steady one (proto/core/millis.h), the other is for people.
#pragma once

#include <chrono>
#include <cstdint>

namespace dtrun {

// Seconds since 1970, by this host's clock.
inline double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

inline std::int64_t steady_nanoseconds() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}
inline double steady_seconds() { return static_cast<double>(steady_nanoseconds()) / 1e9; }

}  // namespace dtrun
