// From where local replicas go on after workers were lost: who holds which replica's state, and at which
// step, decides who hands it on, and which replica is redone from a sync. A pure function.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace dtrun::worker {

// What a rank holds as a generation begins.
struct HeldReplicas {
  std::int64_t sync = -1;           // the newest that it has passed, or where it began; -1: it is new
  bool arrived = false;             // what met there with a delay is in the outer step's state
  std::vector<std::int64_t> steps;  // [replica]: so many of its steps are done; -1: this rank has not got it
  std::int64_t kept = -1;           // a sync of which it has a copy of all replicas' state; -1: none
};

struct LocalStart {
  int source = 0;  // the rank whose outer state and metrics all take over
  std::int64_t sync = 0;
  bool arrived = false;
  struct Replica {
    int from = 0;  // the rank that has its state
    std::int64_t step = 0;
    bool redone = false;  // nobody has more of it than its state at the sync
  };
  std::vector<Replica> replicas;

  bool is_behind_sync() const;  // any replica
};

// Nothing if a replica is held by nobody, and its state at the newest sync neither: then all go back.
// `alike`: at a sync all replicas are the outer state, and no optimizer has more.
std::optional<LocalStart> start_of_replicas(std::span<const HeldReplicas> ranks, int replicas, bool alike);

// Whether a rank's state of a replica is one that a generation can begin with whose newest sync is `sync`. A
// rank that has not passed that yet must stand right before it: then it only has to take over what met.
bool is_current(const HeldReplicas& rank, std::int64_t replica, std::int64_t sync);

// What people are told: "; replica 2 is redone from step 96".
std::string in_words(const LocalStart& start);

}  // namespace dtrun::worker
