// The part of a step's gradient sum that crosses workers. A worker hands in the blocks of the tree
// (core/tree.h) that it finished alone; every worker gets the total, in the tree's order, so its bits
// depend on no world size. What goes to whom is planned in reduction/exchange_plan.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "worker/collective/collective.h"
#include "worker/core/vector_range.h"
#include "worker/vector/arithmetic.h"

namespace dtrun::worker {

class Neighbours;

// Vectors are device memory. Whatever a driver needs on the host it copies itself.
class GradientExchange {
 public:
  virtual ~GradientExchange() = default;

  // Starts a step of `leaves` leaves: what peers send from now on finds its place. `sum`: the whole vector,
  // which holds the total when finish() returns, and nothing that may be used before.
  virtual void begin(std::int64_t leaves, float* sum) = 0;

  // This worker's finished blocks of `bucket` (TreeAccumulator::BucketDone): all that makes them is done, or
  // enqueued on `stream`, the calling thread's own. Any thread, each bucket once. Not called by a worker
  // without leaves. The partial sums must stay as they are until finish() returned.
  virtual void send(int bucket, std::span<const float* const> partials, Stream& stream) = 0;

  // THE COMMIT: blocks until the total is whole in `sum`, on the device too, and nothing is left to do that
  // touches it or the partial sums. Else throws WorkerError(kExitWorkerPeerLost), and `sum` is rubbish. Only
  // when it has returned the parameters may be changed (Arithmetic::update): so a replica that loses a peer
  // is always at a whole step.
  virtual void finish() = 0;

  // After the last step of a generation that ends as planned, called by all ranks alike: when it returns, no
  // peer needs this rank for any step of it.
  virtual void end() {}
};

// Both carry messages over the host's network: where device memory is not the host's
// (Arithmetic::device_is_host) they copy partial sums to it and the total back, and add up there.
//
// Buckets are exchanged in the order of `buckets`. REQUIRES: they tile 0..size-1; `collective` and
// `arithmetic` outlive this.
//
// With `neighbours`, of the same vector and buckets, ranks that share memory read each other's partial sums
// instead: those handed to send() must be buffers of neighbours->memory().
std::unique_ptr<GradientExchange> make_tree_exchange(Collective& collective, Arithmetic& arithmetic,
                                                     std::vector<VectorRange> buckets,
                                                     Neighbours* neighbours = nullptr);

// Sums this worker's blocks in order and leaves the rest to Collective::all_reduce_sum: other bits for each
// world size.
std::unique_ptr<GradientExchange> make_ring_exchange(Collective& collective, Arithmetic& arithmetic,
                                                     std::vector<VectorRange> buckets);

}  // namespace dtrun::worker
