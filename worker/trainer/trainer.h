// The built-in trainer on one rank, from the first look at the data to the final model. Every rank calls it
// with the same config; together they compute what one rank alone would, bit for bit.
#pragma once

#include <memory>

#include "worker/collective/collective.h"
#include "worker/config/config.h"
#include "worker/data/dataset.h"
#include "worker/trainer/agent_link.h"
#include "worker/trainer/resume.h"

namespace dtrun::worker {

struct TrainerSetup {
  JobConfig config;
  Place place;
  int lanes = 1;
};

struct Datasets {
  std::unique_ptr<Dataset> train, test;
};
// Throws WorkerError with EX_NOINPUT.
Datasets load_datasets(const JobConfig& config);

enum class Outcome {
  kCompleted,
  kStopped,  // told to stop: all ranks ended after the same step, which rank 0 saved
};

// Throws WorkerError: EX_CONFIG, EX_NOINPUT, or kExitWorkerPeerLost when the collective broke.
Outcome train(const TrainerSetup& setup, const Datasets& data, Collective& collective, AgentLink& agent);

}  // namespace dtrun::worker
