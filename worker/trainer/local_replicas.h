// The replicas of local SGD that this rank computes (core/local_replicas.h): parameters and an optimizer's
// state of their own between two syncs, at which all ranks sum the replicas' parameters in a tree over their
// numbers and take the outer step. In streaming mode one fragment of them meets at each sync, and with a
// delay its sum travels while the replicas make their next steps. What is between syncs is nobody's but this
// rank's, and is lost with it: a generation begins with all replicas' state of one sync, from a checkpoint or
// as workers kept it.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
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
  // Called by all ranks, which find each other. `state`: of a sync, with all replicas' vectors; replica.state
  // is the same. replica, group and clock must outlive this. `last`: the run's last step.
  LocalReplicas(Replica& replica, const TrainState& state, ProcessGroup& group, StepClock& clock,
                std::int64_t last);
  // Gives up what is on its way, and the process group with it: only after a failure is there any.
  ~LocalReplicas();
  LocalReplicas(const LocalReplicas&) = delete;

  // The ranks that compute own() together.
  ProcessGroup& group() { return *group_; }
  std::vector<LocalReplica>& own() { return own_; }

  // Called by all ranks: begin() behind a sync, arrive() ahead of each of the steps up to the next one, by
  // its number, and sync() there. begin() sends what meets with a delay, arrive() has it taken over. Throw as
  // GradientExchange::finish().
  void begin();
  void arrive(std::int64_t step);
  // Without a delay, and at the end, takes replica.state there, from where every replica goes on; the caller
  // counts its step. Returns the sums of all replicas' steps since the last sync, and the norm of the newest
  // outer gradient.
  StepResult sync(std::int64_t step);

  // Sends every replica's vectors to all ranks that have a copy to put them in; on others it is null. Called
  // by all ranks, right after a sync.
  void collect(TrainState* copy);

  void end();

 private:
  VectorRange elements(int fragment) const;
  bool hands_in(const LocalReplica& one) const;
  void hand_in(const LocalReplica& one, TreeAllReduce& to, const VectorRange& elements);
  void start(int fragment);
  StepResult finish(int fragment);
  StepResult meet(int fragment);
  StepStats sum_of_stats();
  std::vector<float*> vectors_of(LocalReplica& one) const;

  Replica& replica_;
  const TrainConfig& train_;
  Arithmetic& arithmetic_;
  StepClock& clock_;
  ProcessGroup& all_;
  const SyncTimes times_;
  const LocalShare share_;
  const std::unique_ptr<ProcessGroup> group_;
  const std::unique_ptr<ProcessGroup> beside_;  // all ranks, with tags that the group's steps do not use
  std::vector<LocalReplica> own_;
  std::optional<std::int64_t> arrival_;  // of what is on its way
  TreeAllReduce all_reduce_;             // of [statistics | a fragment], a leaf for each replica
  std::optional<TreeAllReduce> stats_;   // of statistics alone, where what meets arrives too late for them
};

}  // namespace dtrun::worker
