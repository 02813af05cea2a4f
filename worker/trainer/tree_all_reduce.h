// The sum of one vector per leaf, over all leaves of all ranks of a group, in the fixed tree's order: this
// rank's leaves are added up as they come (TreeAccumulator), the others' partial sums come in meanwhile
// (GradientExchange). A step sums its microbatches' gradients so, a sync the replicas' parameters.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "proto/core/training.h"
#include "worker/collective/gradient_exchange.h"
#include "worker/collective/process_group.h"
#include "worker/collective/shared_memory_transport.h"
#include "worker/core/tree.h"
#include "worker/core/vector_range.h"
#include "worker/device/device.h"
#include "worker/model/program.h"
#include "worker/reduction/accumulator.h"
#include "worker/vector/arithmetic.h"

namespace dtrun::worker {

// The buckets of a program's [statistics | gradient], or [statistics | parameters]; the statistics are part
// of the last one.
std::vector<VectorRange> summed_buckets(const Program& program);

class TreeAllReduce {
 public:
  // Vectors of `size` floats, exchanged bucket by bucket; `lanes` threads hand in leaves at once. Called by
  // all ranks of `group`, which then find each other. group and device must outlive this. `patience`: the
  // time that a peer may be silent while this rank waits for it.
  TreeAllReduce(ProcessGroup& group, Device& device, std::size_t size, std::vector<VectorRange> buckets,
                int lanes, std::chrono::milliseconds patience = kPeerPatience);

  // This rank's part of so many leaves.
  LeafRange own(std::int64_t leaves) const { return leaves_of_rank(leaves, group_.rank(), group_.size()); }

  // Starts a sum: blocks until peers have read the last one.
  void begin(std::int64_t leaves);
  // As TreeAccumulator's: for each leaf of own(leaves), from any thread.
  float* take(std::int64_t leaf, Stream& stream) { return accumulator_->take(leaf, stream); }
  void complete(std::int64_t leaf, int bucket, Stream& stream) {
    accumulator_->complete(leaf, bucket, stream);
  }
  // The total, in device memory, valid until the next begin(). With peers blocks until it is there, and
  // throws as GradientExchange::finish(); without, the work that makes it is enqueued by the leaves' streams.
  float* finish();
  bool has_peers() const { return exchange_ != nullptr; }

  void end() {
    if (exchange_) exchange_->end();
  }
  // What only the exchange knows of the steps' times.
  void complete(StepTimes* times) const;

 private:
  std::unique_ptr<GradientExchange> make_exchange(const std::vector<VectorRange>& ranges,
                                                  std::chrono::milliseconds patience);

  ProcessGroup& group_;
  Device& device_;
  Arithmetic& arithmetic_;
  bool untold_traffic_ = false;  // a library moves the vectors that does not tell
  const std::size_t size_;

  // Declared in this order because exchanges in flight must be given up before their memory is freed.
  Buffer sum_;  // the total; empty without peers, when the accumulator has it
  std::unique_ptr<SharedMemoryTransport>
      shared_memory_transport_;  // null without peers whose memory could be read
  std::unique_ptr<TreeAccumulator> accumulator_;
  std::unique_ptr<GradientExchange> exchange_;  // null without peers
};

}  // namespace dtrun::worker
