// Whether the memory of a machine is enough for a job of the built-in trainer, before anything is allocated.
// Counted is what grows with the model, the microbatches and the data, and what any process takes: enough to
// refuse a job that cannot fit. Pure: the caller knows the machine. Of a config whose device is a GPU it is
// what must lie in the GPU's memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "proto/core/status.h"
#include "worker/config/config.h"
#include "worker/data/dataset.h"
#include "worker/model/program.h"

namespace dtrun::worker {

// The spread of a job: lanes of each worker, workers of one node, and of the job.
struct Spread {
  int lanes = 1;
  int workers_of_node = 1;
  int world_size = 1;
};

struct TrainingJob {
  JobConfig config;
  Program program;
  DatasetFacts data;
  Spread spread;
};
// `teacher`: its program without parameters; null: there is none. Throws WorkerError (EX_CONFIG) if the data
// does not fit the model.
TrainingJob training_job(const JobConfig& config, const DatasetFacts& data, const Spread& spread,
                         std::shared_ptr<const Teacher> teacher = nullptr);

// Bytes, of one worker.
struct MemoryNeed {
  std::uint64_t parameters = 0;   // its own, and a teacher's
  std::uint64_t optimizer = 0;    // its slots
  std::uint64_t gradients = 0;    // the step's sum, and the tree's partial sums
  std::uint64_t activations = 0;  // of all lanes, with their samples; a teacher's too
  std::uint64_t data = 0;     // data sets of types that are held in memory; one for all of a node's workers
  std::uint64_t copies = 0;   // copies_bytes()
  std::uint64_t process = 0;  // code, libraries, stacks

  std::uint64_t total() const {
    return parameters + optimizer + gradients + activations + data + copies + process;
  }
};
MemoryNeed memory_need(const TrainingJob& job);

// Of one worker, in the host's memory on any device: both halves of the copy that outlives it, or what it
// keeps of two syncs of local replicas.
std::uint64_t copies_bytes(const TrainingJob& job);

// The files of one checkpoint, without the few kilobytes of texts. EX_CONFIG if the data does not fit the
// model.
Result<std::uint64_t> checkpoint_bytes(const JobConfig& config, const DatasetFacts& data);

// The memory that a machine has for a job.
struct Available {
  std::uint64_t bytes = 0;
  std::string by;        // source of the number, for people: "MemAvailable of /proc/meminfo"
  bool of_each = false;  // worker, as a GPU is; else of all of a node's
};

// EX_CONFIG if the data does not fit the model, or there is too little of it to train with.
Status check_fit(const JobConfig& config, const DatasetFacts& data);

// EX_CONFIG if the copies_bytes() of a node's workers on GPUs are more than the host has.
Status check_host_memory(const TrainingJob& job, const Available& available);

// EX_CONFIG if the workers of a node need more than is available; the message has the parts.
Status check_memory(const TrainingJob& job, const Available& available);

// The smallest number of the job's workers from which on a node's part fits, for microbatches in lock step:
// all of a step's are in memory at once, so that each worker has more of them as others go. 1 for other jobs.
// REQUIRES: check_memory() is OK with the same.
int least_workers(const TrainingJob& job, const Available& available);

}  // namespace dtrun::worker
