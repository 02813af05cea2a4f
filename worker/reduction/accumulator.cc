#include "worker/reduction/accumulator.h"

#include <algorithm>
#include <utility>

namespace dtrun::worker {

std::size_t most_partial_sums(const LeafRange& own, std::int64_t lanes) {
  std::size_t most = 0;
  for (std::int64_t done = own.begin; done < own.end; done += lanes) {
    std::size_t blocks = 0;
    for (std::int64_t at = own.begin; at < done; ++blocks) {
      std::int64_t width = 1;
      while (at % (2 * width) == 0 && at + 2 * width <= done) width *= 2;
      at += width;
    }
    most = std::max(most, blocks + static_cast<std::size_t>(std::min(lanes, own.end - done)));
  }
  if (lanes > 1) most = std::min(most + 1, static_cast<std::size_t>(own.end - own.begin));
  return most;
}

TreeAccumulator::TreeAccumulator(Arithmetic& arithmetic, std::function<Buffer()> make_buffer,
                                 std::vector<VectorRange> buckets, int lanes, BucketDone done)
    : arithmetic_(arithmetic),
      buckets_(std::move(buckets)),
      lanes_(lanes),
      done_(std::move(done)),
      pool_(std::move(make_buffer)),
      blocks_left_(std::make_unique<std::atomic<int>[]>(buckets_.size())) {}

void TreeAccumulator::begin(std::int64_t begin, std::int64_t end, std::int64_t leaves) {
  for (std::int64_t i = 0; i < end_ - begin_; ++i) {
    if (own_[i].buffer) pool_.give(std::move(own_[i].buffer), {});
  }
  if (begin != begin_ || end != end_) pool_.reserve(most_partial_sums({begin, end}, lanes_));
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
    events_.resize(arrivals);
  }
  for (std::size_t i = 0; i < arrivals; ++i) arrivals_[i].store(0, std::memory_order_relaxed);
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    blocks_left_[b].store(static_cast<int>(blocks_.size()), std::memory_order_relaxed);
  }
}

float* TreeAccumulator::take(std::int64_t leaf, Stream& stream) {
  Leaf& own = own_[leaf - begin_];
  own.buffer = pool_.take(stream);
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

void TreeAccumulator::complete(std::int64_t leaf, int bucket, Stream& stream) {
  Block block{leaf, 0};
  for (;;) {
    const std::int64_t width = std::int64_t{1} << block.level;
    const Block parent{block.begin & ~width, block.level + 1};
    if (block.level == height_ || !within(parent, begin_, end_, leaves_)) {
      return block_done(block, bucket, stream);
    }
    const Block right{parent.begin + width, block.level};
    const bool alone = right.begin >= leaves_;  // the right child is absent and adds nothing
    if (!alone) {
      // The second child to arrive merges; acquire and release hand it the event that the first one left.
      event(block, bucket) = stream.record();
      auto& arrivals = arrivals_[bucket * nodes_ + node(parent)];
      if (arrivals.fetch_add(1, std::memory_order_acq_rel) == 0) return;
      const Block left{parent.begin, block.level};
      stream.after(event(block == left ? right : left, bucket));
      merge(left, right, bucket, stream);
    }
    block = parent;
  }
}

void TreeAccumulator::merge(const Block& left, const Block& right, int bucket, Stream& stream) {
  const VectorRange range = buckets_[bucket];
  Leaf& from = own_[right.begin - begin_];
  arithmetic_.accumulate(stream, own_[left.begin - begin_].buffer.data() + range.begin,
                         from.buffer.data() + range.begin, range.size());
  event(right, bucket) = stream.record();
  if (from.buckets_in_use.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  // Other threads may have merged the other buckets.
  for (std::size_t b = 0; b < buckets_.size(); ++b) stream.after(event(right, static_cast<int>(b)));
  pool_.give(std::move(from.buffer), stream.record());
}

void TreeAccumulator::block_done(const Block& block, int bucket, Stream& stream) {
  event(block, bucket) = stream.record();
  if (blocks_left_[bucket].fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  for (const Block& each : blocks_) stream.after(event(each, bucket));
  done_(bucket, partials_, stream);
}

}  // namespace dtrun::worker
