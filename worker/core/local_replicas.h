// Local SGD and DiLoCo: M virtual replicas of the model each train on their own part of every step's leaves,
// and meet every H steps (a sync). Which rank computes which replica, and which leaves are a replica's: pure
// functions, in which a rank and the world's size decide nothing but who does the work.
#pragma once

#include <cstdint>

#include "worker/core/sampler.h"
#include "worker/core/tree.h"

namespace dtrun::worker {

// A rank's part. With fewer ranks than replicas a rank computes its replicas in turns, alone; with more a
// group of neighbouring ranks shares one replica, as without local replicas all ranks share the model.
struct LocalShare {
  LeafRange replicas;  // those that this rank computes; never empty
  LeafRange group;     // the ranks that compute them together
  // Of these, the replicas that this rank hands in at a sync: leaves_of_rank(). A group's last rank has its
  // replica, the others none.
  LeafRange handed_in;
  bool operator==(const LocalShare&) const = default;
};
LocalShare share_of_rank(int replicas, int rank, int world);

// The rank that hands `replica` in at a sync.
int rank_of_replica(int replicas, std::int64_t replica, int world);

// A replica's part of a step: leaves [jV/M, (j+1)V/M), as a step of its own. Has no leaves where an epoch's
// last step has fewer than replicas: then the replica stays as it is.
StepPlan part_of_replica(const StepPlan& step, std::int64_t replica, int replicas, int micro_batch);

// The step after which replicas meet next: a multiple of `every`, or the run's last. REQUIRES: step < last.
std::int64_t next_sync(std::int64_t step, std::int64_t every, std::int64_t last);

// The one after which the steps up to `step` began.
std::int64_t sync_before(std::int64_t step, std::int64_t every);

// Whether a multiple of `every` > 0 lies in (before, now]: what is due every so many steps, but can be done
// only at a sync, is due at the first one then.
bool passes(std::int64_t before, std::int64_t now, std::int64_t every);

}  // namespace dtrun::worker
