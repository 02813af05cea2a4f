// The part of a step's gradient sum that crosses workers. A worker hands in the blocks of the tree
// (core/tree.h) that it finished alone; every worker gets the total, in the tree's order, so its bits
// depend on no world size. reduction/exchange_plan.h plans the messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "worker/collective/process_group.h"
#include "worker/core/vector_range.h"
#include "worker/vector/arithmetic.h"

namespace dtrun::worker {

class SharedMemoryTransport;

// Vectors are device memory. An implementation that needs them on the in-memory checkpoints them itself.
class GradientExchange {
 public:
  virtual ~GradientExchange() = default;

  // Starts a step of `leaves` leaves, and posts its receives. `sum`: the whole vector, which holds the total
  // when finish() returns, and undefined values before.
  virtual void begin(std::int64_t leaves, float* sum) = 0;

  // This worker's finished blocks of `bucket` (TreeAccumulator::BucketDone): the work that makes them is
  // done, or enqueued on `stream`, the calling thread's own. Any thread, each bucket once. Not called by a
  // worker without leaves. The partial sums must not change until finish() has returned.
  virtual void send(int bucket, std::span<const float* const> partials, Stream& stream) = 0;

  // THE COMMIT: blocks until the total is complete in `sum`, on the device too, and no work is left that
  // touches it or the partial sums. Else throws WorkerError(kExitWorkerPeerLost), and `sum` is undefined.
  // Only after finish() has returned may the parameters be changed (Arithmetic::update), so a replica that
  // loses a peer is always at a whole step.
  virtual void finish() = 0;

  // Seconds by rank, since this was made (peer_waits.h); empty where that is not known.
  virtual std::vector<double> peer_waits() const { return {}; }

  // Called on all ranks after the last step of a generation that ends as planned: when it returns, no peer
  // needs this rank for a step of that generation.
  virtual void end() {}
};

// Messages go over the host's network: if device memory is not the host's
// (Arithmetic::device_is_host), partial sums are copied to the host, added up there, and the total is copied
// back.
//
// Buckets are exchanged in the order of `buckets`. REQUIRES: they tile 0..size-1; `collective` and
// `arithmetic` outlive this.
//
// With `neighbours`, of the same vector and buckets, ranks that share memory read each other's partial sums
// instead: those handed to send() must be buffers of neighbours->memory().
std::unique_ptr<GradientExchange> make_tree_exchange(ProcessGroup& group, Arithmetic& arithmetic,
                                                     std::vector<VectorRange> buckets,
                                                     SharedMemoryTransport* transport = nullptr);

}  // namespace dtrun::worker
