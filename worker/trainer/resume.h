// Where a generation begins: where the replicas of an earlier one are, else at the newest checkpoint that any
// node holds, one that the config names, or the initial values. Nodes need not share a file system: a rank
// that holds the state sends it to all that lack it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "worker/checkpoint/checkpoint.h"
#include "worker/collective/process_group.h"
#include "worker/config/config.h"
#include "worker/model/program.h"

namespace dtrun::worker {

struct Place {
  int rank = 0, world_size = 1, local_rank = 0;
  std::int64_t generation = 1;
};

// What a rank's replica holds.
struct Held {
  std::optional<std::int64_t> step;  // a whole one; none: no values yet
  std::int64_t copied_in = 0;        // of a copy in the host's memory, where no replica lived on: generation
  std::function<TrainState()> snapshot;  // a copy; without values it has no parameters, and slots of zeros
};

// The same on every rank, but for `state`.
struct ResumePoint {
  enum From { kInitialValues, kCheckpoint, kReplica, kInMemoryCheckpoint };
  From from = kInitialValues;
  int source_rank = 0;              // the rank that had it
  std::string config_json;          // of a checkpoint: the config that wrote it
  std::optional<TrainState> state;  // which this rank has to take over; none: its replica is there already

  bool from_memory() const { return from == kReplica || from == kInMemoryCheckpoint; }
  // For metrics.
  const char* name() const {
    constexpr const char* kNames[] = {"initial_values", "checkpoint", "workers", "in_memory_checkpoint"};
    return kNames[from];
  }
};

// Where the generation begins. Called by all ranks alike. If any of them holds values, no disk is looked at,
// and only those that are behind are sent any; where these are copies in
// the memory of hosts alone, a checkpoint of a later step is preferred. Throws WorkerError: EX_CONFIG if the
// checkpoint does not fit this job, or if the job is to begin afresh where another one's results lie;
// EX_NOINPUT if there are checkpoints, but no good one.
ResumePoint choose_start(const JobConfig& config, const Place& place, const Program& program,
                         const Held& held, ProcessGroup& group, const Notice& notice);

// The parameters of the checkpoint of this very step, from the first rank on whose disk there is a good one:
// in output_dir, or next to the checkpoint that the config names. On rank 0; elsewhere, and if there is none,
// nothing. Called by all ranks alike.
std::optional<std::vector<float>> fetch_parameters(const JobConfig& config, const Place& place,
                                                   const Program& program, std::int64_t step,
                                                   ProcessGroup& group);

// What is to be told where the checkpoint was computed on something else than `now` (Device::fingerprint());
// empty: nothing. Known to the rank that read it.
std::string device_drift(const ResumePoint& start, const std::string& now);

}  // namespace dtrun::worker
