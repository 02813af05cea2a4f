// Where a run begins: the newest checkpoint that any node holds, one that the config names, or the initial
// values. Nodes need not share a file system: the rank that holds the checkpoint sends the state to all.
#pragma once

#include <cstdint>
#include <string>

#include "worker/checkpoint/checkpoint.h"
#include "worker/collective/collective.h"
#include "worker/config/config.h"
#include "worker/model/network.h"

namespace dtrun::worker {

struct Place {
  int rank = 0, world_size = 1, local_rank = 0;
  std::int64_t generation = 1;
};

struct ResumePoint {
  TrainState state;      // the same on every rank
  bool resumed = false;  // false: initial values
  int source_rank = 0;   // the rank that held the checkpoint
};

// Called by all ranks alike. `slots`: the optimizer's, all zero. Throws WorkerError: EX_CONFIG if the
// checkpoint does not fit this job, or if the job is to begin afresh where another one's results lie;
// EX_NOINPUT if there are checkpoints, but no good one.
ResumePoint choose_start(const JobConfig& config, const Place& place, const Network& network,
                         const std::vector<OptimizerSlot>& slots, Collective& collective,
                         const Notice& notice);

// What changed between the config that wrote a checkpoint and this one. `fatal` differences make its
// parameters or samples meaningless here. Empty texts: no difference.
struct ConfigDrift {
  std::string fatal, harmless;
  // The samples that are left of the epoch in hand would not be those that were not used yet.
  bool reorders_samples = false;
};
ConfigDrift config_drift(const JobConfig& now, const std::string& checkpoint_config);

}  // namespace dtrun::worker
