#include <algorithm>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "worker/base/buffer.h"
#include "worker/collective/gradient_exchange.h"
#include "worker/collective/host_sum.h"
#include "worker/collective/neighbours.h"
#include "worker/collective/tags.h"
#include "worker/reduction/exchange_plan.h"

namespace dtrun::worker {

namespace {

struct BucketInFlight {
  std::vector<Buffer> inbox;  // [block of all ranks]: [mine.size()], in every plan; unused for own blocks
  std::vector<const float*> inputs;  // [block of all ranks]: the block's part of `mine`
  std::unique_ptr<Pending> partials_in, partials_out;
  std::unique_ptr<Pending> slices_in, slices_out;  // sliced buckets only
};

std::span<float> part_of(std::span<float> vector, const VectorRange& range) {
  return vector.subspan(range.begin, range.size());
}

class TreeExchange final : public GradientExchange {
 public:
  TreeExchange(Collective& collective, Arithmetic& arithmetic, std::vector<VectorRange> ranges,
               Neighbours* neighbours);
  ~TreeExchange() override;
  void begin(std::int64_t leaves, float* sum) override;
  void send(int bucket, std::span<const float* const> partials, Stream& stream) override;
  void finish() override;

 private:
  const ExchangePlan& plan_of(std::int64_t leaves);
  std::unique_ptr<Pending> start(std::span<const OutMessage> sends, std::span<const InMessage> receives);
  bool shares_with(int peer) const { return neighbours_ != nullptr && neighbours_->shares_with(peer); }
  void post_receives(int bucket);
  std::vector<const float*> on_host(std::span<const float* const> partials, const VectorRange& range,
                                    Stream& stream);
  void add_up(int bucket);
  void finish_slice(int bucket);
  void take_slices();
  void serve_slices();

  Collective& collective_;
  Arithmetic& device_;
  Neighbours* const neighbours_;                                    // null: all peers are reached by messages
  const std::unique_ptr<Arithmetic> host_ = make_cpu_arithmetic();  // adds up received and own partial sums
  const std::unique_ptr<Stream> host_stream_ = host_->make_stream();
  const std::vector<VectorRange> ranges_;       // [bucket]
  std::map<std::int64_t, ExchangePlan> plans_;  // by leaves: two in a run, full steps and an epoch's last
  const ExchangePlan* plan_ = nullptr;          // this step's
  std::vector<BucketInFlight> buckets_;
  HostSum sum_;
  std::vector<Buffer> partials_;  // [own block]: copies for the host; none where device memory is the host's

  // The slice thread turns round one of sliced buckets into round two while lanes still compute.
  std::thread slice_thread_;
  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  bool closing_ = false;
  std::vector<bool> sent_;  // [bucket]: send() was called, or there is nothing to send
  std::size_t next_;        // the bucket that the slice thread handles next; buckets_.size() between steps
  std::exception_ptr failure_;
};

TreeExchange::TreeExchange(Collective& collective, Arithmetic& arithmetic, std::vector<VectorRange> ranges,
                           Neighbours* neighbours)
    : collective_(collective),
      device_(arithmetic),
      neighbours_(neighbours != nullptr && neighbours->any() ? neighbours : nullptr),
      ranges_(std::move(ranges)),
      buckets_(ranges_.size()),
      sum_(arithmetic, size_of(ranges_)),
      next_(ranges_.size()) {
  const auto sliced = [&](const VectorRange& range) {
    return !goes_directly(range, collective_.size(), kDirectBytes);
  };
  if (std::ranges::any_of(ranges_, sliced)) slice_thread_ = std::thread([this] { serve_slices(); });
}

TreeExchange::~TreeExchange() {
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  if (slice_thread_.joinable()) slice_thread_.join();
}

const ExchangePlan& TreeExchange::plan_of(std::int64_t leaves) {
  const auto known = plans_.find(leaves);
  if (known != plans_.end()) return known->second;
  ExchangePlan plan = plan_exchange(leaves, collective_.rank(), collective_.size(), ranges_, kDirectBytes);
  return plans_.emplace(leaves, std::move(plan)).first->second;
}

// Null if there is no message: a rank that has read all that it needs finishes its step, even if the
// collective was aborted in the meantime.
std::unique_ptr<Pending> TreeExchange::start(std::span<const OutMessage> sends,
                                             std::span<const InMessage> receives) {
  if (neighbours_ != nullptr && sends.empty() && receives.empty()) return nullptr;
  return collective_.start(sends, receives);
}

void TreeExchange::begin(std::int64_t leaves, float* sum) {
  plan_ = &plan_of(leaves);
  sum_.begin(sum);
  if (neighbours_ != nullptr) neighbours_->begin_step();
  while (!device_.device_is_host() && partials_.size() < plan_->own_blocks)
    partials_.push_back(device_.allocate(Where::kHost, sum_.host().size()));
  for (std::size_t i = 0; i < buckets_.size(); ++i) post_receives(static_cast<int>(i));
  {
    std::lock_guard lock(mutex_);
    sent_.assign(buckets_.size(), plan_->own_blocks == 0);
    next_ = 0;
  }
  changed_.notify_all();
}

void TreeExchange::post_receives(int index) {
  const BucketPlan& plan = plan_->buckets[index];
  BucketInFlight& bucket = buckets_[index];
  bucket.inputs.assign(plan_->blocks.size(), nullptr);
  if (bucket.inbox.size() < plan_->blocks.size()) bucket.inbox.resize(plan_->blocks.size());
  std::vector<InMessage> partials, slices;
  for (const PartialTransfer& partial : plan.partials_in) {
    if (shares_with(partial.peer)) continue;
    Buffer& buffer = bucket.inbox[partial.input];
    if (!buffer) buffer = Buffer(partial.range.size());
    bucket.inputs[partial.input] = buffer.data();
    partials.push_back({.peer = partial.peer,
                        .tag = tag_of_partial(index, partial.block),
                        .bytes = std::as_writable_bytes(std::span(buffer.data(), buffer.size()))});
  }
  bucket.partials_in = start({}, partials);
  if (plan.direct) return;
  for (const SliceTransfer& slice : plan.slices_in) {
    if (shares_with(slice.peer)) continue;
    slices.push_back({.peer = slice.peer,
                      .tag = tag_of_slice(index),
                      .bytes = std::as_writable_bytes(part_of(sum_.host(), slice.range))});
  }
  bucket.slices_in = start({}, slices);
}

// This range of `partials` in memory that the host can read. Blocks until the range is final.
std::vector<const float*> TreeExchange::on_host(std::span<const float* const> partials,
                                                const VectorRange& range, Stream& stream) {
  std::vector<const float*> here(partials.begin(), partials.end());
  for (std::size_t i = 0; i < here.size() && !device_.device_is_host(); ++i) {
    here[i] = partials_[i].data();
    device_.copy(stream, partials_[i].data() + range.begin, partials[i] + range.begin, range.size());
  }
  stream.wait();
  return here;
}

void TreeExchange::send(int index, std::span<const float* const> on_device, Stream& stream) {
  const std::vector<const float*> partials = on_host(on_device, ranges_[index], stream);
  const BucketPlan& plan = plan_->buckets[index];
  BucketInFlight& bucket = buckets_[index];
  for (std::size_t i = 0; i < partials.size(); ++i) {
    bucket.inputs[plan_->first_own + i] = partials[i] + plan.mine.begin;
  }
  if (neighbours_ != nullptr) neighbours_->publish_partials(index, partials);
  std::vector<OutMessage> messages;
  for (const PartialTransfer& partial : plan.partials_out) {
    if (shares_with(partial.peer)) continue;
    const float* const floats = partials[partial.block] + partial.range.begin;
    messages.push_back({.peer = partial.peer,
                        .tag = tag_of_partial(index, partial.block),
                        .bytes = std::as_bytes(std::span(floats, partial.range.size()))});
  }
  bucket.partials_out = start(messages, {});
  if (plan.direct) return;
  {
    std::lock_guard lock(mutex_);
    sent_[index] = true;
  }
  changed_.notify_all();
}

void TreeExchange::add_up(int index) {
  BucketInFlight& bucket = buckets_[index];
  if (bucket.partials_in) bucket.partials_in->wait();
  for (const PartialTransfer& partial : plan_->buckets[index].partials_in) {
    if (shares_with(partial.peer))
      bucket.inputs[partial.input] =
          neighbours_->partial(partial.peer, index, partial.block) + partial.range.begin;
  }
  const std::span<float> mine = part_of(sum_.host(), plan_->buckets[index].mine);
  host_->sum(*host_stream_, plan_->total, bucket.inputs, mine.data(), mine.size());
}

// Runs on the slice thread.
void TreeExchange::finish_slice(int index) {
  add_up(index);
  if (neighbours_ != nullptr) {
    const VectorRange& mine = plan_->buckets[index].mine;
    std::ranges::copy(part_of(sum_.host(), mine), neighbours_->totals() + mine.begin);
    neighbours_->publish_total(index);
  }
  std::vector<OutMessage> messages;
  for (const SliceTransfer& slice : plan_->buckets[index].slices_out) {
    if (shares_with(slice.peer)) continue;
    messages.push_back({.peer = slice.peer,
                        .tag = tag_of_slice(index),
                        .bytes = std::as_bytes(part_of(sum_.host(), slice.range))});
  }
  buckets_[index].slices_out = start(messages, {});
}

void TreeExchange::take_slices() {
  for (std::size_t index = 0; index < buckets_.size(); ++index) {
    for (const SliceTransfer& slice : plan_->buckets[index].slices_in) {
      if (!shares_with(slice.peer)) continue;
      const float* const totals = neighbours_->total(slice.peer, static_cast<int>(index));
      std::copy_n(totals + slice.range.begin, slice.range.size(), sum_.host().data() + slice.range.begin);
    }
  }
  neighbours_->end_step();
}

void TreeExchange::serve_slices() {
  std::unique_lock lock(mutex_);
  for (;;) {
    // finish() returns only once next_ has reached the end, so begin() never resets it while a bucket is
    // handled.
    changed_.wait(lock, [&] {
      return closing_ ||
             (next_ < buckets_.size() && !failure_ && (plan_->buckets[next_].direct || sent_[next_]));
    });
    if (closing_) return;
    const int bucket = static_cast<int>(next_);
    lock.unlock();
    std::exception_ptr failure;
    try {
      if (!plan_->buckets[bucket].direct) finish_slice(bucket);
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
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    if (plan_->buckets[i].direct) add_up(static_cast<int>(i));
  }
  if (slice_thread_.joinable()) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return failure_ || next_ == buckets_.size(); });
    if (failure_) std::rethrow_exception(failure_);
  }
  for (BucketInFlight& bucket : buckets_) {
    if (bucket.slices_in) bucket.slices_in->wait();
  }
  if (neighbours_ != nullptr) take_slices();
  // Sends last: by now they are mostly done, and nothing waits for them.
  for (BucketInFlight& bucket : buckets_) {
    if (bucket.partials_out) bucket.partials_out->wait();
    if (bucket.slices_out) bucket.slices_out->wait();
  }
  sum_.to_device();
}

}  // namespace

std::unique_ptr<GradientExchange> make_tree_exchange(Collective& collective, Arithmetic& arithmetic,
                                                     std::vector<VectorRange> buckets,
                                                     Neighbours* neighbours) {
  return std::make_unique<TreeExchange>(collective, arithmetic, std::move(buckets), neighbours);
}

}  // namespace dtrun::worker
