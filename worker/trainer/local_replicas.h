// The replicas of local SGD that this rank computes (core/local_replicas.h): parameters and an optimizer's
// state of their own between two syncs, at which all ranks sum the replicas' parameters in a tree over their
// numbers and take the outer step. In streaming mode one fragment of them meets at each sync, and with a
// delay its sum travels while the replicas make their next steps. What is between syncs only the ranks of a
// replica's group have: a generation begins with what is left of that (recovery/hand_over.h), or with all
// replicas' state of one sync, from a checkpoint or as workers kept it.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

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

class LocalReplicas {
 public:
  // Called by all ranks, which find each other. REQUIRES: replica.local are this rank's. replica, group and
  // clock must outlive this. `last`: the run's last step.
  LocalReplicas(Replica& replica, ProcessGroup& group, StepClock& clock, std::int64_t last);
  // Gives up what is on its way, and the process group with it: only after a failure is there any.
  ~LocalReplicas();
  LocalReplicas(const LocalReplicas&) = delete;

  // The ranks that compute own() together.
  ProcessGroup& group() { return *group_; }
  std::vector<LocalReplica>& own() { return replica_.local; }
  // So many steps all of them have done.
  std::int64_t done() const;

  // Called by all ranks: begin() behind a sync, arrive() ahead of each of the steps up to the next one, by
  // its number, and sync() there. begin() sends what meets with a delay, arrive() has it taken over by those
  // that stand there. Throw as GradientExchange::finish(), and have changed nothing then.
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
  void hand_in(const LocalReplica& one, TreeAllReduce& to, std::span<const float> values);
  void start(int fragment);
  StepResult outer_step(int fragment, float* sum);
  void go_half_way(LocalReplica& one, const VectorRange& range);
  StepResult meet(std::int64_t step);
  StepStats sum_of_stats();

  Replica& replica_;
  const TrainConfig& train_;
  Arithmetic& arithmetic_;  // the device's
  StepClock& clock_;
  ProcessGroup& all_;
  const SyncTimes times_;
  const LocalShare share_;
  const std::unique_ptr<ProcessGroup> group_;
  const std::unique_ptr<ProcessGroup> beside_;  // all ranks, with tags that the group's steps do not use
  std::optional<std::int64_t> arrival_;         // of what met at the last sync
  bool on_its_way_ = false;
  const std::unique_ptr<Stream> home_stream_;
  TreeAllReduce all_reduce_;            // of [statistics | a fragment], a leaf for each replica
  std::optional<TreeAllReduce> stats_;  // of statistics alone, where what meets arrives too late for them
};

}  // namespace dtrun::worker
