// Chooses the state that a generation begins with: that of an earlier generation's replicas, else the newest
// checkpoint that any node holds, one that the config names, or the initial values. Nodes need not share a
// file system: a rank that holds the state sends it to all that lack it.
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

struct RankInGeneration {
  int rank = 0, world_size = 1, local_rank = 0;
  std::int64_t generation = 1;
};

// The state that a rank's replica holds.
struct Held {
  std::optional<std::int64_t> step;      // step of the state; none: no values yet
  std::int64_t copied_in = 0;            // not 0: the state is a copy in the host's memory, made in this
                                         // generation
  std::function<TrainState()> snapshot;  // Replica::snapshot()
};

// The same on every rank, except `state`.
struct ResumePoint {
  enum From { kInitialValues, kCheckpoint, kReplica, kInMemoryCheckpoint };
  From from = kInitialValues;
  int source_rank = 0;              // the rank that had it
  std::string config_json;          // for a checkpoint: the config that wrote it
  std::optional<TrainState> state;  // the state that this rank must restore; none: its replica has it already

  bool from_memory() const { return from == kReplica || from == kInMemoryCheckpoint; }
  // For metrics.
  const char* name() const {
    constexpr const char* kNames[] = {"initial_values", "checkpoint", "workers", "in_memory_checkpoint"};
    return kNames[from];
  }
};

// Chooses the beginning of the generation. Called by all ranks. If any rank holds values, no disk is read,
// and only ranks that are behind receive a state; but if all values are copies in the memory of hosts, a
// checkpoint of a later step is preferred. Throws WorkerError: EX_CONFIG if the checkpoint does not fit this
// job, or if the job is to begin afresh in a directory with another job's results; EX_NOINPUT if there are
// checkpoints, but no good one.
ResumePoint choose_start(const JobConfig& config, const RankInGeneration& place, const Program& program,
                         const Held& held, ProcessGroup& group, const Notice& notice);

// Whether any node has a good checkpoint of a later step. Called by all ranks. Reads files only if a
// directory's name promises one.
bool is_on_disk_after(std::int64_t step, const JobConfig& config, const RankInGeneration& place,
                      ProcessGroup& group, const Notice& notice);

// The parameters of the checkpoint of exactly this step, from the first rank whose disk has a good one: in
// output_dir, or next to the checkpoint that the config names. Returned on rank 0; nothing on other ranks,
// and if there is no such checkpoint. Called by all ranks.
std::optional<std::vector<float>> fetch_parameters(const JobConfig& config, const RankInGeneration& place,
                                                   const Program& program, std::int64_t step,
                                                   ProcessGroup& group);

// A message if the checkpoint is of a run on other data than `now`; else empty. Throws WorkerError,
// EX_CONFIG, where that has another number of training samples and the config does not allow it. Only the
// rank that read the checkpoint has it.
std::string data_drift(const ResumePoint& start, const DataIdentity& now, bool may_differ);

// A message if the checkpoint was computed on another device than `now` (Device::fingerprint()); else empty.
// Only the rank that read the checkpoint has it.
std::string device_drift(const ResumePoint& start, const std::string& now);

}  // namespace dtrun::worker
