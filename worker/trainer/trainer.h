// The built-in trainer on one rank, from the choice of a checkpoint to the final model. Every rank calls it
// with the same config; together they compute what one rank alone would, bit for bit.
#pragma once

#include "worker/collective/process_group.h"
#include "worker/trainer/agent_link.h"
#include "worker/trainer/replica.h"
#include "worker/trainer/resume.h"

namespace dtrun::worker {

enum class Outcome {
  kCompleted,
  kStopped,  // told to stop: all ranks ended after the same step, which rank 0 saved
  kPaused,   // told to pause: all ranks left the generation after the same step
};

// One generation. Throws WorkerError: EX_CONFIG, EX_NOINPUT, or kExitWorkerPeerLost when the process group
// broke; then the replica is at a whole step.
Outcome train(Replica& replica, const Place& place, ProcessGroup& group, AgentLink& agent);

// For a replica that is to end without peers: saves its state, unless that is done already or another process
// writes to its output directory. A failure is only told: training needs no disk.
void save_alone(const Replica& replica);

}  // namespace dtrun::worker
