// A worker's share of the tree sum: takes its leaves' gradients as lanes finish them, bucket by bucket in any
// order, merges siblings as soon as both are there, and reports when all blocks that this worker can finish
// alone are done. The order in which leaves arrive changes the lane that adds, never the operands.
//
// A leaf is complete when the work that makes it is enqueued, not when that is done: each lane hands in a
// stream, and the lane that completes a pair enqueues the addition on its own, behind the event that the
// sibling left.
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

// The most vectors of partial sums that a worker holds while `lanes` lanes go through its leaves: one for
// each lane, one for each block that is done, and with several lanes one that waits for a slower lane's.
std::size_t most_partial_sums(const LeafRange& own, std::int64_t lanes);

class TreeAccumulator {
 public:
  // Called once per bucket and step, by the thread that finished the bucket's last block; partials[i] is the
  // whole vector whose range of this bucket holds blocks()[i], in device memory, valid until the next
  // begin(). The work that makes them is done, or enqueued in front of later work on `stream`, that thread's
  // own.
  using BucketDone = std::function<void(int bucket, std::span<const float* const> partials, Stream& stream)>;

  // make_buffer: makes a whole vector in device memory; any thread calls it. buckets: disjoint ranges of the
  // vector. `lanes`: the number that work at once. `arithmetic` and the streams must outlive this.
  TreeAccumulator(Arithmetic& arithmetic, std::function<Buffer()> make_buffer,
                  std::vector<VectorRange> buckets, int lanes, BucketDone done);

  // Starts a step: this worker has leaves [begin, end) of 0..leaves-1. Makes all buffers of the step, so that
  // memory runs out here or never. Not concurrent with any other function. REQUIRES: the work that was
  // enqueued on the previous step's buffers is done.
  void begin(std::int64_t begin, std::int64_t end, std::int64_t leaves);

  // The device memory for `leaf`, to be written by work on `stream`: called once per leaf and step, from any
  // thread.
  float* take(std::int64_t leaf, Stream& stream);

  // Reports that the work that makes the range `bucket` of the leaf's buffer is done, or enqueued on
  // `stream`. From any thread.
  void complete(std::int64_t leaf, int bucket, Stream& stream);

  const std::vector<Block>& blocks() const { return blocks_; }

  // The sum of all leaves, once the work that makes it is done; valid until the next begin(). REQUIRES: all
  // leaves are this worker's.
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
  std::vector<std::size_t> level_offset_;                  // the place in arrivals_ of a level's first node
  std::size_t nodes_ = 0;                                  // per bucket
  std::unique_ptr<std::atomic<std::uint8_t>[]> arrivals_;  // [bucket][node]: number of complete children
  std::size_t arrivals_capacity_ = 0;
  // [bucket][node]: the event of the node's sum or, once that was added to its left sibling's, of this
  // addition. Written by the thread that enqueued the addition, before it counts itself as arrived, so that
  // arrivals_, buckets_in_use and blocks_left_ publish the event.
  std::vector<Event> events_;
  std::unique_ptr<std::atomic<int>[]> blocks_left_;  // [bucket]
};

}  // namespace dtrun::worker
