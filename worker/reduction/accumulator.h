// A worker's share of the tree sum: takes its leaves' gradients as lanes finish them, bucket by bucket in any
// order, merges siblings as soon as both are there, and says when all blocks that this worker can finish
// alone are done. The order in which leaves arrive changes who adds, never what is added to what.
//
// A leaf is complete when the work that makes it is enqueued, not when it is done: each lane hands in a
// stream, the one that completes a pair enqueues the addition there, behind the event that its sibling left.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "worker/core/tree.h"
#include "worker/core/vector_range.h"
#include "worker/reduction/buffer_pool.h"
#include "worker/vector/arithmetic.h"

namespace dtrun::worker {

// Vectors of partial sums that a worker holds at most while `lanes` lanes go through its leaves: one for each
// lane, one for each block that is done, and with several lanes one that waits for a slower lane's.
std::size_t most_partial_sums(const LeafRange& own, std::int64_t lanes);

class TreeAccumulator {
 public:
  // Called once per bucket and step, by the thread that finished the bucket's last block; partials[i] is the
  // whole vector whose range of this bucket holds blocks()[i], in device memory, good until the next begin().
  // All that makes them is done, or enqueued before what is now enqueued on `stream`, that thread's own.
  using BucketDone = std::function<void(int bucket, std::span<const float* const> partials, Stream& stream)>;

  // make_buffer: of the whole vector, in device memory; any thread calls it. buckets: disjoint ranges of the
  // vector. `lanes` work at once. `arithmetic` and the streams must outlive this.
  TreeAccumulator(Arithmetic& arithmetic, std::function<Buffer()> make_buffer,
                  std::vector<VectorRange> buckets, int lanes, BucketDone done);

  // Starts a step: this worker has leaves [begin, end) of 0..leaves-1. Makes the buffers that it will take,
  // so that memory is short now or never. Not concurrent with anything else here. REQUIRES: all that was
  // enqueued on the buffers of the step before is done.
  void begin(std::int64_t begin, std::int64_t end, std::int64_t leaves);

  // The device memory into which work on `stream` is to write `leaf`: call once per leaf and step, from any
  // thread.
  float* take(std::int64_t leaf, Stream& stream);

  // All that makes the range `bucket` of the leaf's buffer is done before what is enqueued on `stream` from
  // now on. From any thread.
  void complete(std::int64_t leaf, int bucket, Stream& stream);

  const std::vector<Block>& blocks() const { return blocks_; }

  // The sum of all leaves, once all that makes it is done; good until the next begin(). REQUIRES: they all
  // are this worker's.
  float* root() { return own_[0].buffer.data(); }

 private:
  struct Leaf {
    Buffer buffer;
    std::atomic<int> buckets_in_use{0};
  };
  std::size_t node(const Block& block) const;
  Event& event(const Block& block, int bucket) { return events_[bucket * nodes_ + node(block)]; }
  void merge(const Block& left, const Block& right, int bucket, Stream& stream);
  void block_done(const Block& block, int bucket, Stream& stream);

  Arithmetic& arithmetic_;
  const std::vector<VectorRange> buckets_;
  const int lanes_;
  const BucketDone done_;
  BufferPool pool_;

  // The step. Everything is sized in begin(); afterwards only atomics and buffers change.
  std::int64_t begin_ = 0, end_ = 0, leaves_ = 1;
  int height_ = 0;
  std::vector<Block> blocks_;
  std::vector<const float*> partials_;  // of blocks_; filled by take()
  std::unique_ptr<Leaf[]> own_;         // [end - begin]
  std::size_t own_capacity_ = 0;
  std::vector<std::size_t> level_offset_;                  // where a level's nodes begin in arrivals_
  std::size_t nodes_ = 0;                                  // per bucket
  std::unique_ptr<std::atomic<std::uint8_t>[]> arrivals_;  // [bucket][node]: children that are complete
  std::size_t arrivals_capacity_ = 0;
  // [bucket][node]: of the node's sum, or once that was added to its left sibling's, of this addition.
  // Written by the thread that enqueued it, before it counts itself as arrived; so arrivals_, buckets_in_use
  // and blocks_left_ hand it on.
  std::vector<Event> events_;
  std::unique_ptr<std::atomic<int>[]> blocks_left_;  // [bucket]
};

}  // namespace dtrun::worker
