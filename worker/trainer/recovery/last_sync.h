// The way back of local replicas when workers were lost. Each worker keeps its own replicas' state of the
// last two syncs, or all replicas' where recovery.in_memory_checkpoint_steps asks for that. A generation
// begins at the newest sync of which the workers that are left hold the state of every replica.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "worker/checkpoint/checkpoint.h"
#include "worker/collective/process_group.h"
#include "worker/trainer/recovery/replica.h"
#include "worker/trainer/recovery/resume.h"

namespace dtrun::worker {

// Two, because a worker may be lost when some of the others have passed a sync and some have not.
inline constexpr std::size_t kKeptSyncs = 2;

struct LastSync {
  std::int64_t step = 0;
  std::vector<int> holders;  // [replica]: the first rank that has its state
};

// `steps`: [rank][kept sync][replica], the step of that sync if the rank holds the replica's state there,
// else -1. Nothing if no sync is whole. Pure.
std::optional<LastSync> last_whole_sync(std::span<const std::int64_t> steps, int replicas);

// Called by all ranks. Brings the outer state and the metrics of that sync to every rank, and the replicas'
// states to those that compute them now: then that is what this worker keeps. Nothing if there is no such
// sync, or if a node has a good checkpoint of a later step. A rank that loses a peer meanwhile keeps what it
// had. Throws WorkerError, kExitWorkerPeerLost.
std::optional<ResumePoint> go_back_to_sync(Replica& replica, const RankInGeneration& place,
                                           ProcessGroup& group, const Notice& notice);

}  // namespace dtrun::worker
