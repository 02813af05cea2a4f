// Charges the time of a generation to the kinds of goodput (proto/core/goodput.h), by the reports of rank 0's
// node: the time that its workers do not account for is loading before their account begins, and the phase
// reported last since. Pure. Between generations the coordinator's own state tells the kind (run/stepper.cc).
#pragma once

#include <optional>

#include "proto/core/goodput.h"
#include "proto/core/millis.h"
#include "proto/core/training.h"

namespace dtrun::rendezvous {

// The time of one generation, from its assignments until it breaks or the job ends.
struct GenerationTime {
  Millis ran = 0;                       // so far
  std::optional<Progress> report = {};  // the newest of rank 0's node
  Millis reported_at = 0;               // of `ran`
  bool adopted = false;                 // by a coordinator that came to it while it ran
};

// `spent` and the generation's time. Of the steps that it did, those up to spent.best_step had been done
// before.
Goodput with_generation(Goodput spent, const GenerationTime& time, bool trainer);

// What it does now. `best_step`: that earlier generations are known to have got to.
double Goodput::*kind_of(const GenerationTime& time, std::int64_t best_step, bool trainer);

// One that an agent keeps for a coordinator that is restarted: without numbers that cannot be.
Goodput within_reason(Goodput goodput);

}  // namespace dtrun::rendezvous
