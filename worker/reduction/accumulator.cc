#include "worker/reduction/accumulator.h"

#include <utility>

namespace dtrun::worker {

TreeAccumulator::TreeAccumulator(std::size_t size, std::vector<VectorRange> buckets, BucketDone done)
    : buckets_(std::move(buckets)),
      done_(std::move(done)),
      pool_(size),
      blocks_left_(std::make_unique<std::atomic<int>[]>(buckets_.size())) {}

void TreeAccumulator::begin(std::int64_t begin, std::int64_t end, std::int64_t leaves) {
  for (std::int64_t i = 0; i < end_ - begin_; ++i) {
    if (own_[i].buffer) pool_.give(std::move(own_[i].buffer));
  }
  begin_ = begin, end_ = end, leaves_ = leaves;
  height_ = tree_height(leaves);
  blocks_ = blocks_of(begin, end, leaves);
  partials_.assign(blocks_.size(), nullptr);

  const auto count = static_cast<std::size_t>(end - begin);
  if (count > own_capacity_) own_ = std::make_unique<Leaf[]>(own_capacity_ = count);

  level_offset_.assign(height_ + 1, 0);
  nodes_ = 0;
  for (int level = 0; level <= height_ && count > 0; ++level) {
    level_offset_[level] = nodes_;
    nodes_ += static_cast<std::size_t>(((end - 1) >> level) - (begin >> level) + 1);
  }
  const std::size_t arrivals = nodes_ * buckets_.size();
  if (arrivals > arrivals_capacity_) {
    arrivals_ = std::make_unique<std::atomic<std::uint8_t>[]>(arrivals_capacity_ = arrivals);
  }
  for (std::size_t i = 0; i < arrivals; ++i) arrivals_[i].store(0, std::memory_order_relaxed);
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    blocks_left_[b].store(static_cast<int>(blocks_.size()), std::memory_order_relaxed);
  }
}

float* TreeAccumulator::take(std::int64_t leaf) {
  Leaf& own = own_[leaf - begin_];
  own.buffer = pool_.take();
  own.buckets_in_use.store(static_cast<int>(buckets_.size()), std::memory_order_relaxed);
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    if (blocks_[i].begin == leaf) partials_[i] = own.buffer.data();
  }
  return own.buffer.data();
}

std::size_t TreeAccumulator::node(const Block& block) const {
  return level_offset_[block.level] +
         static_cast<std::size_t>((block.begin >> block.level) - (begin_ >> block.level));
}

void TreeAccumulator::complete(std::int64_t leaf, int bucket) {
  Block block{leaf, 0};
  for (;;) {
    const std::int64_t width = std::int64_t{1} << block.level;
    const Block parent{block.begin & ~width, block.level + 1};
    if (block.level == height_ || !within(parent, begin_, end_, leaves_)) return block_done(bucket);
    const bool alone = parent.begin + width >= leaves_;  // the right child is absent and adds nothing
    if (!alone) {
      // The second to arrive merges; acquire and release hand it what the first one wrote.
      auto& arrivals = arrivals_[bucket * nodes_ + node(parent)];
      if (arrivals.fetch_add(1, std::memory_order_acq_rel) == 0) return;
      merge(parent.begin, parent.begin + width, bucket);
    }
    block = parent;
  }
}

void TreeAccumulator::merge(std::int64_t left, std::int64_t right, int bucket) {
  const VectorRange range = buckets_[bucket];
  Leaf& from = own_[right - begin_];
  add_right({own_[left - begin_].buffer.data() + range.begin, range.size()},
            {from.buffer.data() + range.begin, range.size()});
  if (from.buckets_in_use.fetch_sub(1, std::memory_order_acq_rel) == 1) pool_.give(std::move(from.buffer));
}

void TreeAccumulator::block_done(int bucket) {
  if (blocks_left_[bucket].fetch_sub(1, std::memory_order_acq_rel) == 1) done_(bucket, partials_);
}

}  // namespace dtrun::worker
