// A run on one rank: its state, and the objects that compute with it. Independent of ranks and peers, so a
// replica outlives generations.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "worker/checkpoint/checkpoint.h"
#include "worker/config/config.h"
#include "worker/data/dataset.h"
#include "worker/device/device.h"
#include "worker/device/lane_team.h"
#include "worker/metrics/metrics.h"
#include "worker/model/program.h"
#include "worker/optim/optimizer.h"
#include "worker/trainer/recovery/in_memory_checkpoint.h"
#include "worker/vector/arithmetic.h"

namespace dtrun::worker {

struct Datasets {
  std::unique_ptr<Dataset> train, test;
  DataIdentity identity = {};
};
// `memory`: the descriptor of the agent's for a node's data (worker/data/node_memory.h), which is taken over;
// -1: none. Throws WorkerError with EX_NOINPUT.
Datasets load_datasets(const JobConfig& config, int memory = -1);

// A TrainState whose vectors are in the memory of Replica::home(). With local replicas those of the outer
// step, as after the last sync: the replicas have their own (local_replicas.h), which no rank has alone, so
// that it has no values to go on with.
struct ReplicaState {
  struct Slot {
    std::string name;
    Buffer values;
  };
  std::int64_t step = 0;    // optimizer steps done
  bool has_values = false;  // false until the run's first state was restored
  // Not 0: the values are a copy made in that generation by another process, and no generation began with
  // them yet.
  std::int64_t copied_in = 0;
  Buffer parameters;        // flat
  std::vector<Slot> slots;  // the optimizer's
  std::string config_json;
};

// The Device::fingerprint() of a replica on this machine's CPU, known before anything is loaded. Throws
// WorkerError with EX_NOINPUT, or with EX_CONFIG if data and model do not fit each other.
std::string fingerprint_on_cpu(const JobConfig& config);

// The program's teacher, as checkpoints name it.
TeacherFile teacher_file(const Program& program);

// The state of a sync of local replicas, in the host's memory. Slots of replicas that this rank does not hold
// are empty.
struct KeptSync {
  TrainState state;
  MetricsLog log;
};
// Without parameters, and with slots of no values.
TrainState empty_state(const TrainConfig& train);

struct Replica {
  // config and data must outlive this. The state is that before the first step, without values. Throws
  // WorkerError with EX_CONFIG if config and data do not fit each other.
  Replica(const JobConfig& config, const Datasets& data, int lanes,
          std::unique_ptr<Device> on = make_cpu_device());
  Replica(const Replica&) = delete;

  // A copy of the state in host memory; without parameters, and with slots of zeros, if the state has no
  // values yet.
  TrainState snapshot() const;
  // A snapshot into a copy that has its size already, in two steps: begin_snapshot() takes a copy within the
  // device's memory, if there was room for it, and finish_snapshot(), on any thread, waits until all of it is
  // in host memory. Without room begin_snapshot() takes the whole time. REQUIRES: each finish_snapshot() has
  // returned before the next begin_snapshot().
  void make_room_for_snapshots();
  void begin_snapshot(TrainState& copy);
  void finish_snapshot(TrainState& copy) const;
  // Takes over a state with vectors of the same length and the slots of this optimizer.
  // REQUIRES: no copy is being made in the host's memory.
  void restore(const TrainState& from);

  // The device whose memory has the state's vectors. With local replicas that is the host: what meets goes
  // over its network, and the device has room for what trains.
  Device& home() const { return host ? *host : *device; }
  // The state's vectors: parameters, then the optimizer's slots.
  std::vector<float*> vectors() const;
  // state.parameters in device memory, for lanes; valid until the state changes. Blocks.
  const float* parameters_for_lanes();
  // A hash of each parameter's tensor, in the program's order; equal on ranks with equal bits.
  std::vector<std::uint64_t> parameter_hashes() const;

  // One optimizer step with a step's sum (Arithmetic::update). Blocks. The caller counts the step. REQUIRES:
  // no copy is being made in the host's memory.
  StepResult update(const UpdateRule& rule, float* sum);
  // The same for vectors of the caller's.
  StepResult update(const UpdateRule& rule, float* sum, float* parameters, std::vector<float*> slots);
  // The outer step (Arithmetic::outer_update) that takes the state to the next sync.
  StepResult outer_update(const OuterRule& rule, float* sum);

  const JobConfig& config;
  const Datasets& data;
  const Program program;
  const std::unique_ptr<Device> device;
  const std::unique_ptr<Device> host;    // null where home() is the device
  const std::unique_ptr<Stream> stream;  // for work on `state`
  LaneTeam lanes;
  // Changes only between the end of a gradient's exchange and the next step, so the state is always that of a
  // whole step, also when a peer was lost in the middle of one.
  ReplicaState state;
  MetricsLog log;                                            // changes with the state
  std::unique_ptr<InMemoryCheckpoint> in_memory_checkpoint;  // null: no copies
  std::vector<KeptSync> kept;                                // of local replicas: the newest is the last

 private:
  Arithmetic& arithmetic() const { return home().arithmetic(); }
  Parallel on_lanes();
  UpdatedVectors updated(float* parameters, std::vector<float*> slots) const;
  std::vector<float*> slots() const;
  std::vector<float> on_host(const Buffer& values) const;
  void copy_out(Stream& on, std::span<const float* const> from, TrainState& to) const;

  Buffer for_lanes_;                 // a copy of state.parameters; empty where lanes read those
  Buffer snapshot_;                  // all vectors, in device memory; empty without room
  std::unique_ptr<Stream> copying_;  // for copies from snapshot_
  Event taken_;                      // when snapshot_ is complete
  const std::vector<VectorRange> decaying_;
  const std::vector<RunningStatistics> statistics_;
};

}  // namespace dtrun::worker
