// When the coordinator has to act although nothing happens.
#pragma once

#include <algorithm>

#include "proto/core/millis.h"

namespace dtrun::rendezvous {

// The deadlines of one run, except for those of its away seats (Seats::deadline).
struct Deadlines {
  Millis join = kNever;        // gathering: the job ends if no generation has started
  Millis last_call = kNever;   // gathering: the first generation starts without those that are missing
  Millis pausing = kNever;     // gathering: no longer wait for workers of members that came back
  Millis restart = kNever;     // gathering: end of the back-off before the next generation
  Millis stop_order = kNever;  // stopping: members whose workers still run are ordered to stop
  Millis settle = kNever;      // stopping: no longer wait for the member that was told to stop to leave
  Millis sweep = kNever;       // look for silent members; none can be overdue before
  Millis announce = kNever;    // tell the members that wait how many have joined

  Millis earliest() const {
    const Millis start = pausing != kNever ? pausing : last_call;  // a last call that is over waits
    return std::min({join, start, restart, stop_order, settle, sweep, announce});
  }
};

}  // namespace dtrun::rendezvous
