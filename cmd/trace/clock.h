// How the clock of a node stands to the coordinator's, from messages there and back: `dtrun trace`. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace dtrun::cmd {

// One message and its answer, in ns: sent and received by the coordinator's clock, answered by the node's.
struct ClockSample {
  std::int64_t sent = 0, answered = 0, received = 0;
};

struct ClockOffset {
  std::int64_t to_coordinator = 0;  // ns to be added to the node's time
  std::int64_t error = 0;           // ns by which that may be wrong, either way
};

// Clocks of two hosts drift apart by less than this while a trace is taken: what NTP may slew.
inline constexpr double kMostDrift = 500e-6;

// By the sample with the shortest way: the answer was given at some moment of it. `error` also allows for the
// drift from there to the furthest sample. Nothing without a sample whose numbers make sense.
std::optional<ClockOffset> offset_of(std::span<const ClockSample> samples);

}  // namespace dtrun::cmd
