// The samples of each step, in the epoch's order, and the number of microbatches they are cut into: pure
// functions of the config. Nothing here depends on rank or time. The last step of an epoch may be smaller
// than the others, and so may its last microbatch.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "worker/core/philox.h"

namespace dtrun::worker {

// A permutation of 0..size-1 of which any place can be computed alone: a Feistel network on as many bits as
// the places need, walked until the result is below size.
class IndexPermutation {
 public:
  // REQUIRES: 1 <= size <= 2^32.
  IndexPermutation(const RandomStream& random, std::int64_t size);
  std::uint32_t at(std::int64_t i) const;  // REQUIRES: 0 <= i < size

 private:
  std::uint64_t encrypt(std::uint64_t value) const;

  RandomStream random_;
  std::uint64_t size_;
  int low_bits_ = 0, high_bits_ = 0;  // of the two halves; 2^(both) is less than 2 * size
};

// The order in which an epoch takes the samples: a permutation of 0..samples-1 that depends on (seed, epoch)
// alone. Up to kLargestShuffle samples it is shuffled in memory (Fisher-Yates); above that it is computed and
// takes no memory. Immutable, so any thread may read.
class EpochOrder {
 public:
  static constexpr std::int64_t kLargestShuffle = std::int64_t{1} << 22;  // 16 MB

  EpochOrder() = default;  // of no samples
  EpochOrder(std::uint64_t seed, std::int64_t epoch, std::int64_t samples);
  // The sample in this place. REQUIRES: 0 <= place < samples.
  std::uint32_t at(std::int64_t place) const {
    return computed_ ? computed_->at(place) : shuffled_[static_cast<std::size_t>(place)];
  }

 private:
  std::vector<std::uint32_t> shuffled_;
  std::optional<IndexPermutation> computed_;
};

// One optimizer step, counted from 0 over the whole run.
struct StepPlan {
  std::int64_t epoch = 0;
  std::int64_t first_sample = 0;  // position in the epoch's order
  std::int64_t samples = 0;       // of this step's global batch
  std::int64_t leaves = 0;        // microbatches of this step
  std::int64_t first_leaf = 0;    // number of the first microbatch, unique in the whole run
};

class BatchSampler {
 public:
  // drop_last: an epoch ends before a step that would be smaller than the others. REQUIRES: the epoch keeps
  // at least one step.
  BatchSampler(std::int64_t dataset_size, int global_batch, int micro_batch, int epochs,
               std::int64_t max_steps, bool drop_last = false);
  std::int64_t steps_per_epoch() const { return steps_per_epoch_; }
  std::int64_t total_steps() const { return total_steps_; }
  StepPlan step(std::int64_t step) const;  // REQUIRES: 0 <= step < total_steps()

 private:
  std::int64_t dataset_size_, steps_per_epoch_, total_steps_;
  int global_batch_, micro_batch_;
};

}  // namespace dtrun::worker
