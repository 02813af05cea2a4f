// The part of a step's gradient sum that crosses workers. A worker hands in the blocks of the tree
// (core/tree.h) that it finished alone; every worker gets the total, in the tree's order, so its bits
// depend on no world size. What goes to whom is planned in reduction/exchange_plan.h.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "worker/collective/collective.h"
#include "worker/core/vector_range.h"

namespace dtrun::worker {

class GradientExchange {
 public:
  virtual ~GradientExchange() = default;

  // Starts a step of `leaves` leaves: what peers send from now on finds its place. `sum`: the whole vector,
  // which holds the total when finish() returns.
  virtual void begin(std::int64_t leaves, std::span<float> sum) = 0;

  // This worker's finished blocks of `bucket` (TreeAccumulator::BucketDone). Any thread, each bucket once.
  // Not called by a worker without leaves. The partial sums must stay as they are until finish() returned.
  virtual void send(int bucket, std::span<const float* const> partials) = 0;

  // Blocks until the total is there. Throws WorkerError(kExitWorkerPeerLost).
  virtual void finish() = 0;
};

// Buckets are exchanged in the order of `buckets`. REQUIRES: they tile 0..size-1, and `collective` outlives
// this.
std::unique_ptr<GradientExchange> make_tree_exchange(Collective& collective,
                                                     std::vector<VectorRange> buckets);

// Sums this worker's blocks in order and leaves the rest to Collective::all_reduce_sum: other bits for each
// world size.
std::unique_ptr<GradientExchange> make_ring_exchange(Collective& collective,
                                                     std::vector<VectorRange> buckets);

// Bytes that a rank sends directly per step and bucket at most; beyond it slices are used.
inline constexpr std::size_t kDirectBytes = 256 * 1024;

}  // namespace dtrun::worker
