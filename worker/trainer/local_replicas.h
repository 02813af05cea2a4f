// The replicas of local SGD that this rank computes (core/local_replicas.h): parameters and an optimizer's
// state of their own between two syncs, at which all ranks sum the replicas' parameters in a tree over their
// numbers and take the outer step. What a replica did since the last sync is lost with any worker: a
// generation begins with all replicas' state of one sync (recovery/last_sync.h), or of a checkpoint.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "worker/base/buffer.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/collective/process_group.h"
#include "worker/core/local_replicas.h"
#include "worker/trainer/recovery/replica.h"
#include "worker/trainer/step_clock.h"
#include "worker/trainer/tree_all_reduce.h"
#include "worker/vector/update.h"

namespace dtrun::worker {

// The time that a peer may be silent while a rank waits for it: with local replicas it may have all steps up
// to a sync to make.
std::chrono::milliseconds peer_patience(const TrainConfig& train);

struct LocalReplica {
  std::int64_t number = 0;
  Buffer parameters;          // device memory, as the slots
  std::vector<Buffer> slots;  // config.optim's
  StepStats stats = {};       // of its steps since the last sync

  StepResult update(Replica& with, const UpdateRule& rule, float* sum);
};

class LocalReplicas {
 public:
  // Called by all ranks, which find each other. `state`: of a sync, with the vectors of this rank's replicas;
  // replica.state is the same. replica, group and clock must outlive this.
  LocalReplicas(Replica& replica, const TrainState& state, ProcessGroup& group, StepClock& clock);

  // The ranks that compute own() together.
  ProcessGroup& group() { return *group_; }
  std::vector<LocalReplica>& own() { return own_; }

  // Called by all ranks after the same step: takes replica.state there, from where every replica goes on; the
  // caller counts its step. Returns the sums of all replicas' steps since the last sync, and the norm of the
  // outer gradient. Throws as GradientExchange::finish(), and has changed nothing then.
  StepResult sync();

  // Right after a sync. Copies the slots of this rank's replicas, and empties those of the others.
  void copy_own(TrainState& copy) const;
  // Sends every replica's slots to all ranks that have a copy to put them in; on others it is null. Called by
  // all ranks.
  void collect(TrainState* copy);

  void end() { all_reduce_.end(); }

 private:
  void hand_in(const LocalReplica& one);
  std::size_t first_slot(std::int64_t number) const;  // in TrainState::optimizer

  Replica& replica_;
  const TrainConfig& train_;
  Arithmetic& arithmetic_;  // the device's
  StepClock& clock_;
  ProcessGroup& all_;
  const LocalShare share_;
  const std::unique_ptr<ProcessGroup> group_;
  std::vector<LocalReplica> own_;
  const std::unique_ptr<Stream> home_stream_;
  TreeAllReduce all_reduce_;  // of [statistics | parameters], a leaf for each replica
};

}  // namespace dtrun::worker
