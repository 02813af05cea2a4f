// Which samples a step uses, and into how many microbatches they are cut, in the epoch's order: pure
// functions of the config. Nothing here depends on rank or time. The last step of an epoch may be smaller
// than the others, and so may its last microbatch.
#pragma once

#include <cstdint>
#include <vector>

namespace dtrun::worker {

// A permutation of 0..samples-1 that depends on (seed, epoch) alone (Fisher-Yates over worker/core/philox.h).
std::vector<std::uint32_t> epoch_order(std::uint64_t seed, std::int64_t epoch, std::int64_t samples);

// One optimizer step, counted from 0 over the whole run.
struct StepPlan {
  std::int64_t epoch = 0;
  std::int64_t first_sample = 0;  // position in the epoch's order
  std::int64_t samples = 0;       // of this step's global batch
  std::int64_t leaves = 0;        // microbatches of this step
  std::int64_t first_leaf = 0;    // a number for the first of them that no other step's microbatch has
};

class Schedule {
 public:
  Schedule(std::int64_t dataset_size, int global_batch, int micro_batch, int epochs, std::int64_t max_steps);
  std::int64_t steps_per_epoch() const { return steps_per_epoch_; }
  std::int64_t total_steps() const { return total_steps_; }
  StepPlan step(std::int64_t step) const;  // REQUIRES: 0 <= step < total_steps()

 private:
  std::int64_t dataset_size_, steps_per_epoch_, total_steps_;
  int global_batch_, micro_batch_;
};

}  // namespace dtrun::worker
