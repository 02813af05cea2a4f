// The peak memory of a worker of the built-in trainer, part by part, and whether a node has it: computed
// before anything is allocated. Pure: the caller knows the machine. The peak is in a step, with everything
// allocated; the beginning (reading a checkpoint, initial values) and the end need no more. Of a config whose
// device is a GPU it is what must lie in the GPU's memory, without what CUDA's libraries take.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

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

// Bytes, of one worker.
struct MemoryNeed {
  std::uint64_t parameters = 0;   // its own, and a teacher's
  std::uint64_t optimizer = 0;    // its slots
  std::uint64_t gradients = 0;    // the step's sum, partial sums of the tree, receive buffers
  std::uint64_t activations = 0;  // of all lanes, a teacher's too; an evaluation uses the same memory
  std::uint64_t batches = 0;      // samples laid out for the lanes
  std::uint64_t evaluation = 0;   // in addition to training: evaluation's batches, and each microbatch's sums
  std::uint64_t data = 0;         // the data sets, and the epoch's order
  std::uint64_t checkpoint = 0;   // the copy of parameters and slots for saving or starting
  std::uint64_t in_memory_checkpoint = 0;  // both halves of the copy that outlives the worker
  std::uint64_t process = 0;               // code, libraries, stacks

  std::uint64_t total() const;
};

// "parameters" … with its bytes, in the order above.
std::vector<std::pair<const char*, std::uint64_t>> parts_of(const MemoryNeed& need);

// The need of the worker that needs most: one that writes checkpoints if `saves`, else one that does not.
// REQUIRES: `program` is the config's, with its teacher's program if there is one.
MemoryNeed memory_need(const JobConfig& config, const Program& program, const DatasetFacts& data,
                       const Spread& spread, bool saves);

// Both halves of the copy that outlives a worker, in the host's memory on any device; with local replicas what
// it keeps of two syncs.
std::uint64_t in_memory_checkpoint_bytes(const JobConfig& config, const Program& program,
                                         const Spread& spread);

// The files of one checkpoint, without the few kilobytes of texts. EX_CONFIG if the data does not fit the
// model.
Result<std::uint64_t> checkpoint_bytes(const JobConfig& config, const DatasetFacts& data);

// "1.3 GB": two digits are enough to act on.
std::string in_gigabytes(std::uint64_t bytes);

// "a worker needs 1.3 GB: parameters 0.5 GB, …", the largest part first, small ones left out.
std::string in_words(const MemoryNeed& need);

// The memory that a machine has for a job.
struct Available {
  std::uint64_t bytes = 0;
  std::string by;        // source of the number, for people: "MemAvailable of /proc/meminfo"
  bool of_each = false;  // worker, as a GPU is; else of all of a node's
};

// EX_CONFIG if the data does not fit the model, or there is too little of it to train with.
Status check_fit(const JobConfig& config, const DatasetFacts& data);

// EX_CONFIG if what a node's workers on GPUs keep in the host's memory needs more than is available: copies
// that outlive them, and of local replicas what meets. Throws WorkerError (EX_CONFIG) if the data does not
// fit the model.
Status check_host_memory(const JobConfig& config, const DatasetFacts& data, const Spread& spread,
                         const Available& available);

// EX_CONFIG if the workers of a node need more than is available; the message has the parts, and changes that
// help. Throws WorkerError (EX_CONFIG) if the data does not fit the model.
// `teacher`: its program without parameters; null: there is none.
Status check_memory(const JobConfig& config, const DatasetFacts& data, const Spread& spread,
                    const Available& available, std::shared_ptr<const Teacher> teacher = nullptr);

// The smallest number of the job's workers from which on a node's part fits, for microbatches in lock step:
// all of a step's are in memory at once, so that each worker has more of them as others go. 1 for other jobs.
// REQUIRES: check_memory() is OK with the same.
int least_workers(const JobConfig& config, const DatasetFacts& data, const Spread& spread,
                  const Available& available, std::shared_ptr<const Teacher> teacher = nullptr);

}  // namespace dtrun::worker
