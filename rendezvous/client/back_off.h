// How long a client waits before it tries to connect again. Pure.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace dtrun::rendezvous {

inline constexpr std::chrono::milliseconds kFirstBackOff{50};
inline constexpr std::chrono::milliseconds kLongestBackOff{2000};

// After the `attempt`th failure in a row, from 1. Spread by up to a quarter, so that a thousand agents don't
// come back in the same instant; `random` is the state of a random number generator.
inline std::chrono::milliseconds back_off(int attempt, std::uint64_t* random) {
  const auto base = std::min(kLongestBackOff, kFirstBackOff * (1 << std::min(attempt - 1, 6)));
  *random = *random * 6364136223846793005u + 1442695040888963407u;
  return base - base * static_cast<int>((*random >> 33) % 256) / 1024;
}

}  // namespace dtrun::rendezvous
