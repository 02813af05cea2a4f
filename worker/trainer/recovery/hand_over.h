// Brings local replicas' states to the ranks that compute them in a generation: from a sync's whole state, or
// from the ranks that hold them as the generation before left them (local_start.h).
#pragma once

#include <optional>
#include <vector>

#include "worker/checkpoint/checkpoint.h"
#include "worker/collective/process_group.h"
#include "worker/core/local_replicas.h"
#include "worker/trainer/recovery/local_start.h"
#include "worker/trainer/recovery/replica.h"

namespace dtrun::worker {

// Of a run with so many steps.
SyncTimes sync_times(const TrainConfig& train, std::int64_t last);

// A replica's vectors as checkpoints have them, in the order of replica_vector_names().
std::vector<float*> kept_vectors(const TrainConfig& train, const LocalReplica& one);

// This rank's replicas begin at a sync. `state`: of that sync, with all replicas' vectors; replica.state is
// the same.
void restore_replicas(Replica& replica, const TrainState& state, const ProcessGroup& group);

// Called by all ranks. Either every rank gets the newest sync's state and metrics, and its replicas as far as
// any rank has got with them, or nothing: then all have to go back. A rank that loses a peer meanwhile has
// one of the two states whole. Throws WorkerError, kExitWorkerPeerLost.
std::optional<LocalStart> hand_over_replicas(Replica& replica, ProcessGroup& group, std::int64_t last);

}  // namespace dtrun::worker
