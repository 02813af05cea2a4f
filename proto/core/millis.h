// Time in the pure cores: whole milliseconds. All other code takes std::chrono; the driver of a core
// converts.
#pragma once

#include <cstdint>

namespace dtrun {

// A duration, or a point of this host's steady clock; only differences of points mean something.
using Millis = std::int64_t;

}  // namespace dtrun
