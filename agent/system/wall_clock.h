// The time for people. Decisions use the steady clock (proto/core/millis.h).
#pragma once

#include <chrono>

namespace dtrun::agent {

// Seconds since 1970, by this host's clock.
inline double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace dtrun::agent
