// Time in the pure cores: whole milliseconds. All other code takes std::chrono; the driver of a core
// converts.
#pragma once

#include <cstdint>
#include <limits>

namespace dtrun {

// A duration, or a point of this host's steady clock; only differences of points mean something.
using Millis = std::int64_t;

// No deadline is set. It is the largest time, so the earliest of several deadlines is their minimum, set or
// not.
inline constexpr Millis kNever = std::numeric_limits<Millis>::max();

}  // namespace dtrun
