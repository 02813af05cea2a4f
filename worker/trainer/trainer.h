// The built-in trainer on one rank, from the choice of a checkpoint to the final model. Every rank calls it
// with the same config; together they compute what one rank alone would, bit for bit.
#pragma once

#include "worker/collective/process_group.h"
#include "worker/trainer/agent_protocol/agent_link.h"
#include "worker/trainer/recovery/replica.h"
#include "worker/trainer/recovery/resume.h"

namespace dtrun::worker {

enum class Outcome {
  kCompleted,
  kStopped,  // told to stop: all ranks ended after the same step, which rank 0 saved
  kPaused,   // told to pause: all ranks left the generation after the same step
};

// One generation. Throws WorkerError: EX_CONFIG, EX_NOINPUT, or kExitWorkerPeerLost when the process group
// broke; then the replica is at a whole step.
Outcome train(Replica& replica, const RankInGeneration& place, ProcessGroup& group, AgentLink& agent);

}  // namespace dtrun::worker
