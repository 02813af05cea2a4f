// Saves the state of a worker that is told to stop while it waits for a place: no other process may have it.
#pragma once

#include "worker/trainer/recovery/replica.h"

namespace dtrun::worker {

// For a replica that is to end without peers: saves its state, unless that is done already or another process
// writes to its output directory. A failure is only logged: training needs no disk.
void save_alone(const Replica& replica);

}  // namespace dtrun::worker
