// The replicas of local SGD that this rank computes (core/local_replicas.h): parameters and an optimizer's
// state of their own between two syncs, at which all ranks sum the replicas' parameters in a tree over their
// numbers and take the outer step. What is between syncs is nobody's but this rank's, and is lost with it: a
// generation begins with all replicas' state of one sync, from a checkpoint or as workers kept it.
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
  // Called by all ranks, which find each other. `state`: of a sync, with all replicas' slots; replica.state
  // is the same. replica, group and clock must outlive this.
  LocalReplicas(Replica& replica, const TrainState& state, ProcessGroup& group, StepClock& clock);

  // The ranks that compute own() together.
  ProcessGroup& group() { return *group_; }
  std::vector<LocalReplica>& own() { return own_; }

  // Called by all ranks after the same step: takes replica.state there, from where every replica goes on.
  // Returns the sums of all replicas' steps since the last sync, and the norm of the outer gradient. Throws
  // as GradientExchange::finish().
  StepResult sync();

  // Sends every replica's slots to all ranks that have a copy to put them in; on others it is null. Called by
  // all ranks, right after a sync.
  void collect(TrainState* copy);

  void end() { all_reduce_.end(); }

 private:
  void hand_in(const LocalReplica& one);

  Replica& replica_;
  Arithmetic& arithmetic_;
  StepClock& clock_;
  ProcessGroup& all_;
  const int replicas_;
  const LocalShare share_;
  const std::unique_ptr<ProcessGroup> group_;
  std::vector<LocalReplica> own_;
  TreeAllReduce all_reduce_;  // of [statistics | parameters], a leaf for each replica
};

}  // namespace dtrun::worker
