// What a run is on one rank: its state, and what computes with it. Knows nothing of ranks and peers, so it
// outlives them.
#pragma once

#include <memory>

#include "worker/checkpoint/checkpoint.h"
#include "worker/config/config.h"
#include "worker/data/dataset.h"
#include "worker/device/device.h"
#include "worker/model/network.h"
#include "worker/optim/optimizer.h"
#include "worker/trainer/lane_team.h"

namespace dtrun::worker {

struct Datasets {
  std::unique_ptr<Dataset> train, test;
};
// Throws WorkerError with EX_NOINPUT.
Datasets load_datasets(const JobConfig& config);

struct Replica {
  // config and data must outlive this. The state is that before the first step, without values yet. Throws
  // WorkerError with EX_CONFIG if they do not fit each other.
  Replica(const JobConfig& config, const Datasets& data, int lanes);
  Replica(const Replica&) = delete;

  const JobConfig& config;
  const Datasets& data;
  const Network network;
  const std::unique_ptr<Device> device;
  LaneTeam lanes;
  const std::unique_ptr<Optimizer> optimizer;
  // Changes only between the end of a gradient's exchange and the next step: so it is always that of a whole
  // step, also when a peer was lost in the middle of one.
  TrainState state;
};

}  // namespace dtrun::worker
