#include <algorithm>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "worker/base/buffer.h"
#include "worker/collective/gradient_exchange.h"
#include "worker/collective/tags.h"
#include "worker/core/tree.h"

namespace dtrun::worker {

namespace {

// What every rank knows about a step from its number of leaves.
struct StepShape {
  StepShape(std::int64_t leaves, int world) : first_block(world + 1, 0) {
    for (int rank = 0; rank < world; ++rank) {
      const LeafRange range = leaves_of_rank(leaves, rank, world);
      for (const Block& block : blocks_of(range.begin, range.end, leaves)) blocks.push_back(block);
      first_block[rank + 1] = blocks.size();
    }
    total = std::make_unique<TreeSum>(blocks, leaves);
  }
  std::size_t blocks_of_rank(int rank) const { return first_block[rank + 1] - first_block[rank]; }

  std::vector<Block> blocks;  // of all ranks, by ascending leaf
  std::vector<std::size_t> first_block;
  std::unique_ptr<TreeSum> total;
};

struct BucketInFlight {
  VectorRange range;
  bool direct = true;
  VectorRange mine;                          // what this rank adds up: the bucket, or its slice of it
  std::vector<Buffer> inbox;                 // [block of all ranks]: [mine.size()]; unused for own blocks
  std::vector<const float*> inputs;          // [block of all ranks]: where that block's part of `mine` is
  std::unique_ptr<Pending> receives, sends;  // partial sums
  std::unique_ptr<Pending> slices_in, slices_out;  // second round, sliced buckets only
};

class TreeExchange final : public GradientExchange {
 public:
  TreeExchange(Collective& collective, std::vector<VectorRange> ranges);
  ~TreeExchange() override;
  void begin(std::int64_t leaves, std::span<float> sum) override;
  void send(int bucket, std::span<const float* const> partials) override;
  void finish() override;

 private:
  VectorRange slice(const VectorRange& range, int rank) const;
  const StepShape& shape_of(std::int64_t leaves);
  void post_receives(int bucket);
  void add_up(BucketInFlight& bucket);
  void finish_slice(int bucket);
  void serve_slices();

  Collective& collective_;
  const int rank_, world_;
  std::vector<BucketInFlight> buckets_;
  std::map<std::int64_t, StepShape> shapes_;  // by leaves: two in a run, full steps and an epoch's last
  const StepShape* shape_ = nullptr;
  std::span<float> sum_;

  // The slice thread turns round one of sliced buckets into round two while lanes still compute.
  std::thread slice_thread_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  bool closing_ = false;
  std::vector<bool> sent_;  // [bucket]: send() was called, or there is nothing to send
  std::size_t next_;        // the bucket that the slice thread handles next; all of them between steps
  std::exception_ptr failure_;
};

TreeExchange::TreeExchange(Collective& collective, std::vector<VectorRange> ranges)
    : collective_(collective),
      rank_(collective.rank()),
      world_(collective.size()),
      buckets_(ranges.size()),
      next_(ranges.size()) {
  bool any_sliced = false;
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    BucketInFlight& bucket = buckets_[i];
    bucket.range = ranges[i];
    bucket.direct = world_ <= 2 || ranges[i].size() * sizeof(float) * (world_ - 1) <= kDirectBytes;
    bucket.mine = bucket.direct ? bucket.range : slice(bucket.range, rank_);
    any_sliced |= !bucket.direct;
  }
  if (any_sliced) slice_thread_ = std::thread([this] { serve_slices(); });
}

TreeExchange::~TreeExchange() {
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  if (slice_thread_.joinable()) slice_thread_.join();
}

VectorRange TreeExchange::slice(const VectorRange& range, int rank) const {
  return {range.begin + range.size() * rank / world_, range.begin + range.size() * (rank + 1) / world_};
}

const StepShape& TreeExchange::shape_of(std::int64_t leaves) {
  return shapes_.try_emplace(leaves, leaves, world_).first->second;
}

void TreeExchange::begin(std::int64_t leaves, std::span<float> sum) {
  shape_ = &shape_of(leaves);
  sum_ = sum;
  for (std::size_t i = 0; i < buckets_.size(); ++i) post_receives(static_cast<int>(i));
  {
    std::lock_guard lock(mutex_);
    sent_.assign(buckets_.size(), shape_->blocks_of_rank(rank_) == 0);
    next_ = 0;
  }
  changed_.notify_all();
}

void TreeExchange::post_receives(int index) {
  BucketInFlight& bucket = buckets_[index];
  bucket.inputs.assign(shape_->blocks.size(), nullptr);
  if (bucket.inbox.size() < shape_->blocks.size()) bucket.inbox.resize(shape_->blocks.size());
  std::vector<InMessage> partials, slices;
  for (int peer = 0; peer < world_; ++peer) {
    if (peer == rank_) continue;
    for (std::size_t i = 0; i < shape_->blocks_of_rank(peer); ++i) {
      Buffer& buffer = bucket.inbox[shape_->first_block[peer] + i];
      if (!buffer) buffer = Buffer(bucket.mine.size());
      bucket.inputs[shape_->first_block[peer] + i] = buffer.data();
      partials.push_back({.peer = peer,
                          .tag = tag_of_partial(index, i),
                          .bytes = std::as_writable_bytes(std::span(buffer.data(), bucket.mine.size()))});
    }
    if (!bucket.direct) {
      const VectorRange theirs = slice(bucket.range, peer);
      slices.push_back({.peer = peer,
                        .tag = tag_of_slice(index),
                        .bytes = std::as_writable_bytes(sum_.subspan(theirs.begin, theirs.size()))});
    }
  }
  bucket.receives = collective_.start({}, partials);
  if (!bucket.direct) bucket.slices_in = collective_.start({}, slices);
}

void TreeExchange::send(int index, std::span<const float* const> partials) {
  BucketInFlight& bucket = buckets_[index];
  std::vector<OutMessage> messages;
  for (std::size_t i = 0; i < partials.size(); ++i) {
    bucket.inputs[shape_->first_block[rank_] + i] = partials[i] + bucket.mine.begin;
  }
  for (int peer = 0; peer < world_; ++peer) {
    if (peer == rank_) continue;
    const VectorRange theirs = bucket.direct ? bucket.range : slice(bucket.range, peer);
    for (std::size_t i = 0; i < partials.size(); ++i) {
      messages.push_back({.peer = peer,
                          .tag = tag_of_partial(index, i),
                          .bytes = std::as_bytes(std::span(partials[i] + theirs.begin, theirs.size()))});
    }
  }
  bucket.sends = collective_.start(messages, {});
  if (bucket.direct) return;
  {
    std::lock_guard lock(mutex_);
    sent_[index] = true;
  }
  changed_.notify_all();
}

void TreeExchange::add_up(BucketInFlight& bucket) {
  bucket.receives->wait();
  shape_->total->run(bucket.inputs, sum_.subspan(bucket.mine.begin, bucket.mine.size()));
}

// Runs on the slice thread.
void TreeExchange::finish_slice(int index) {
  BucketInFlight& bucket = buckets_[index];
  add_up(bucket);
  std::vector<OutMessage> messages;
  for (int peer = 0; peer < world_; ++peer) {
    if (peer == rank_) continue;
    messages.push_back({.peer = peer,
                        .tag = tag_of_slice(index),
                        .bytes = std::as_bytes(sum_.subspan(bucket.mine.begin, bucket.mine.size()))});
  }
  bucket.slices_out = collective_.start(messages, {});
}

void TreeExchange::serve_slices() {
  std::unique_lock lock(mutex_);
  for (;;) {
    // finish() returns only once next_ has reached the end, so begin() never resets it while a bucket is
    // handled.
    changed_.wait(lock, [&] {
      return closing_ || (next_ < buckets_.size() && !failure_ && (buckets_[next_].direct || sent_[next_]));
    });
    if (closing_) return;
    const int bucket = static_cast<int>(next_);
    lock.unlock();
    std::exception_ptr failure;
    try {
      if (!buckets_[bucket].direct) finish_slice(bucket);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    failure_ = failure;
    ++next_;
    changed_.notify_all();
  }
}

void TreeExchange::finish() {
  for (BucketInFlight& bucket : buckets_) {
    if (bucket.direct) add_up(bucket);
  }
  if (slice_thread_.joinable()) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return failure_ || next_ == buckets_.size(); });
    if (failure_) std::rethrow_exception(failure_);
  }
  for (BucketInFlight& bucket : buckets_) {
    if (!bucket.direct) bucket.slices_in->wait();
  }
  // Sends last: when a peer dies, gloo ends what is to come from it at once, but may leave a send to it
  // waiting until the timeout.
  for (BucketInFlight& bucket : buckets_) {
    if (bucket.sends) bucket.sends->wait();
    if (!bucket.direct) bucket.slices_out->wait();
  }
}

}  // namespace

std::unique_ptr<GradientExchange> make_tree_exchange(Collective& collective,
                                                     std::vector<VectorRange> buckets) {
  return std::make_unique<TreeExchange>(collective, std::move(buckets));
}

}  // namespace dtrun::worker
