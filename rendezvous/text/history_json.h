// The history of a run as JSON, for the page of the job and for programs. Times are seconds since 1970 by the
// coordinator's clock.
#pragma once

#include <nlohmann/json.hpp>

#include "rendezvous/core/observe/history.h"

namespace dtrun::rendezvous {

// `wall_now` is the time in seconds since 1970 when the history's clock said `now`.
struct ClockPair {
  Millis now = 0;
  double wall_now = 0;
};

// By the curves' names, those without a point left out: arrays of [step, value, time]. A value that is not
// finite is null.
nlohmann::ordered_json series_json(const History& history, const ClockPair& clock);

// The ranks beside each other, the oldest window first: arrays of time, generation and, by rank,
// own_time_ratio or null.
nlohmann::ordered_json windows_json(const History& history, const ClockPair& clock);

// What the time went to, the oldest first: arrays of a kind of goodput and the time from which on; the kind
// is null once the run is over.
nlohmann::ordered_json life_json(const History& history, const ClockPair& clock);

// The oldest first.
nlohmann::ordered_json events_json(const History& history, const ClockPair& clock);

}  // namespace dtrun::rendezvous
