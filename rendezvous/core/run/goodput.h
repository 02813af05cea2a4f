// Charges a run's time to the kinds of goodput (proto/core/goodput.h). Pure. Between generations the
// coordinator's own state tells the kind. Within one, the reports of rank 0's node do: the time that its
// workers do not account for is loading before their account begins, and the phase reported last since.
#pragma once

#include <optional>

#include "proto/core/goodput.h"
#include "proto/core/millis.h"
#include "proto/core/training.h"

namespace dtrun::rendezvous {

struct State;

// The time of one generation, from its assignments until it breaks or the job ends.
struct GenerationTime {
  Millis ran = 0;                       // so far
  std::optional<Progress> report = {};  // the newest of rank 0's node
  Millis reported_at = 0;               // of `ran`
};

// Charges the time until `now` to what the run was doing. Call it before anything changes the state.
void charge(State& state, Millis now);

// From the first member's coming until `now`, or the run's end.
Goodput goodput_of(const State& state, Millis now);

// One that an agent keeps for a coordinator that is restarted: without numbers that cannot be.
Goodput within_reason(Goodput goodput);

}  // namespace dtrun::rendezvous
