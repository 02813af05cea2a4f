// What a worker of the built-in trainer needs of memory at its peak, part by part, and whether a node has it:
// worked out before anything is allocated. Pure: who asks knows the machine. The peak is in a step, with
// everything allocated; the beginning (reading a checkpoint, initial values) and the end need no more.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "proto/core/status.h"
#include "worker/config/config.h"
#include "worker/data/dataset.h"
#include "worker/model/program.h"

namespace dtrun::worker {

// How a job is spread: of each worker, and of one node.
struct Spread {
  int lanes = 1;
  int workers_of_node = 1;
  int world_size = 1;
};

// Bytes, of one worker.
struct MemoryNeed {
  std::uint64_t parameters = 0;
  std::uint64_t optimizer = 0;    // its slots
  std::uint64_t gradients = 0;    // the step's sum, partial sums of the tree, what peers send
  std::uint64_t activations = 0;  // of all lanes; an evaluation uses the same memory
  std::uint64_t batches = 0;      // samples laid out for the lanes
  std::uint64_t evaluation = 0;   // beyond that of training: its own batches, and each microbatch's sums
  std::uint64_t data = 0;         // what the data sets hold, and the epoch's order
  std::uint64_t checkpoint = 0;   // the copy of parameters and slots that a save or the start is made from
  std::uint64_t host_copy = 0;    // both halves of what outlives the worker
  std::uint64_t process = 0;      // code, libraries, stacks

  std::uint64_t total() const;
};

// "parameters" … with its bytes, in the order above.
std::vector<std::pair<const char*, std::uint64_t>> parts_of(const MemoryNeed& need);

// Of the worker that needs most: one that writes checkpoints if `saves`, else one that does not. The program
// is the config's.
MemoryNeed memory_need(const JobConfig& config, const Program& program, const DatasetFacts& data,
                       const Spread& spread, bool saves);

// Of the host, where the workers compute on GPUs: what outlives a worker, both halves.
std::uint64_t host_copy_bytes(const JobConfig& config, const Program& program);

// "1.3 GB": two digits are enough to act on.
std::string in_gigabytes(std::uint64_t bytes);

// "a worker needs 1.3 GB: parameters 0.5 GB, …", the largest part first, small ones left out.
std::string in_words(const MemoryNeed& need);

// What a machine can give.
struct Available {
  std::uint64_t bytes = 0;
  std::string by;  // what says so, for people: "MemAvailable of /proc/meminfo"
};

// EX_CONFIG if the data does not fit the model, or there is too little of it to train with.
Status check_fit(const JobConfig& config, const DatasetFacts& data);

// EX_CONFIG if the copies that a node's workers keep in the host's memory need more than there is, whatever
// they compute on. Throws WorkerError (EX_CONFIG) if the data does not fit the model.
Status check_host_copies(const JobConfig& config, const DatasetFacts& data, int workers,
                         const Available& available);

// EX_CONFIG if the workers of a node need more than there is: with the parts, and with what to change. Throws
// likewise.
Status check_memory(const JobConfig& config, const DatasetFacts& data, const Spread& spread,
                    const Available& available);

}  // namespace dtrun::worker
