#include <algorithm>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "worker/base/buffer.h"
#include "worker/base/operation_log.h"
#include "worker/collective/gradient_exchange.h"
#include "worker/collective/host_sum.h"
#include "worker/collective/peer_waits.h"
#include "worker/collective/shared_memory_transport.h"
#include "worker/collective/tags.h"
#include "worker/reduction/exchange_plan.h"

namespace dtrun::worker {

namespace {

struct BucketInFlight {
  std::vector<Buffer> inbox;                   // [slot]: empty for a piece in a neighbour's memory
  std::vector<const float*> slots;             // [slot]: the content, here or in a neighbour's memory
  std::vector<const float*> partials;          // [own block]: the whole vector
  std::vector<std::unique_ptr<Work>> in, out;  // [round]
};

struct PlannedStep {
  ExchangePlan exchange;
  std::vector<RoundOfBucket> followed;  // all rounds but each bucket's last, in the order of groups
};

std::span<float> part_of(std::span<float> vector, const VectorRange& range) {
  return vector.subspan(range.begin, range.size());
}

class TreeExchange final : public GradientExchange {
 public:
  TreeExchange(ProcessGroup& group, Arithmetic& arithmetic, std::vector<VectorRange> ranges,
               SharedMemoryTransport* transport);
  ~TreeExchange() override;
  void begin(std::int64_t leaves, float* sum) override;
  void send(int bucket, std::span<const float* const> partials, Stream& stream) override;
  void finish() override;
  std::vector<double> peer_waits() const override { return waits_.seconds(); }

 private:
  const PlannedStep& plan_of(std::int64_t leaves);
  const std::vector<ExchangeRound>& rounds(std::size_t bucket) const {
    return plan_->exchange.buckets[bucket].rounds;
  }
  std::unique_ptr<Work> start(std::span<const OutMessage> sends, std::span<const InMessage> receives);
  bool shares_with(int peer) const {
    return shared_memory_transport_ != nullptr && shared_memory_transport_->shares_with(peer);
  }
  void post_receives(std::size_t bucket);
  std::vector<const float*> on_host(std::span<const float* const> partials, const VectorRange& range,
                                    Stream& stream);
  float* put(std::size_t bucket, const Piece& piece);
  const float* read(std::size_t bucket, const Piece& piece);
  void start_round(std::size_t bucket, std::size_t number);
  void complete_round(std::size_t bucket, std::size_t number);
  void look_up(std::size_t bucket, const InMove& move);
  void serve_rounds();

  ProcessGroup& group_;
  Arithmetic& device_;
  const int ranks_of_host_;
  SharedMemoryTransport* const shared_memory_transport_;            // null: all peers are reached by messages
  const std::unique_ptr<Arithmetic> host_ = make_cpu_arithmetic();  // adds up received and own partial sums
  const std::unique_ptr<Stream> host_stream_ = host_->make_stream();
  const std::vector<VectorRange> ranges_;      // [bucket]
  std::map<std::int64_t, PlannedStep> plans_;  // by leaves: two in a run, full steps and an epoch's last
  const PlannedStep* plan_ = nullptr;          // this step's
  std::vector<BucketInFlight> buckets_;
  HostSum sum_;
  PeerWaits waits_{group_.size()};
  std::vector<Buffer> partials_;  // [own block]: copies for the host; none where device memory is the host's

  // The thread of rounds takes buckets that have several to their last one while lanes still compute.
  std::thread rounds_thread_;
  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  bool closing_ = false;
  std::vector<bool> sent_;                   // [bucket]: send() was called, or there is nothing to send
  std::span<const RoundOfBucket> followed_;  // of this step
  std::size_t next_ = 0;                     // of them, which that thread completes next; all between steps
  std::exception_ptr failure_;
};

TreeExchange::TreeExchange(ProcessGroup& group, Arithmetic& arithmetic, std::vector<VectorRange> ranges,
                           SharedMemoryTransport* transport)
    : group_(group),
      device_(arithmetic),
      ranks_of_host_(transport != nullptr ? ranks_of_each_host(transport->hosts()) : 0),
      shared_memory_transport_(transport != nullptr && transport->any() ? transport : nullptr),
      ranges_(std::move(ranges)),
      buckets_(ranges_.size()),
      sum_(arithmetic, size_of(ranges_)) {
  const auto sliced = [&](const VectorRange& range) {
    return !goes_directly(range, group_.size(), kDirectBytes);
  };
  if (std::ranges::any_of(ranges_, sliced)) rounds_thread_ = std::thread([this] { serve_rounds(); });
}

TreeExchange::~TreeExchange() {
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  if (rounds_thread_.joinable()) rounds_thread_.join();
}

const PlannedStep& TreeExchange::plan_of(std::int64_t leaves) {
  const auto [place, is_new] = plans_.try_emplace(leaves);
  PlannedStep& plan = place->second;
  if (!is_new) return plan;
  plan.exchange = plan_exchange(leaves, group_.rank(), group_.size(), ranks_of_host_, ranges_, kDirectBytes);
  for (std::size_t group = 0; group < plan.exchange.groups(); ++group)
    for (const RoundOfBucket& each : plan.exchange.rounds_of(group))
      if (each.number + 1 < plan.exchange.buckets[each.bucket].rounds.size()) plan.followed.push_back(each);
  return plan;
}

// Null if there is no message: a rank that has read all that it needs finishes its step, even if the
// collective was aborted in the meantime.
std::unique_ptr<Work> TreeExchange::start(std::span<const OutMessage> sends,
                                          std::span<const InMessage> receives) {
  if (shared_memory_transport_ != nullptr && sends.empty() && receives.empty()) return nullptr;
  return group_.start(sends, receives);
}

void TreeExchange::begin(std::int64_t leaves, float* sum) {
  plan_ = &plan_of(leaves);
  sum_.begin(sum);
  if (shared_memory_transport_ != nullptr) shared_memory_transport_->begin_step();
  while (!device_.device_is_host() && partials_.size() < plan_->exchange.own_blocks)
    partials_.push_back(device_.allocate(Where::kHost, sum_.host().size()));
  for (std::size_t i = 0; i < buckets_.size(); ++i) post_receives(i);
  {
    std::lock_guard lock(mutex_);
    sent_.assign(buckets_.size(), plan_->exchange.own_blocks == 0);
    followed_ = plan_->followed;
    next_ = 0;
  }
  changed_.notify_all();
}

// Posts those of all rounds: within a bucket each has a destination of its own.
void TreeExchange::post_receives(std::size_t index) {
  BucketInFlight& bucket = buckets_[index];
  const std::size_t slots = plan_->exchange.buckets[index].slots.size();
  bucket.slots.assign(slots, nullptr);
  bucket.inbox.resize(std::max(bucket.inbox.size(), slots));
  bucket.in.clear();
  bucket.out.clear();
  bucket.out.resize(rounds(index).size());
  for (std::size_t number = 0; number < rounds(index).size(); ++number) {
    std::vector<InMessage> messages;
    for (const InMove& move : rounds(index)[number].in) {
      if (shares_with(move.peer)) continue;
      messages.push_back(
          {.peer = move.peer,
           .tag = tag_of_round(static_cast<int>(index), number),
           .bytes = std::as_writable_bytes(std::span(put(index, move.piece), move.piece.range.size()))});
    }
    bucket.in.push_back(start({}, messages));
  }
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

// The destination of a move or sum: a part of the whole sum, or a whole slot.
float* TreeExchange::put(std::size_t index, const Piece& piece) {
  if (piece.vector == Piece::kSum) return sum_.host().data() + piece.range.begin;
  BucketInFlight& bucket = buckets_[index];
  Buffer& slot = bucket.inbox[piece.number];
  if (slot.size() < piece.range.size()) slot = Buffer(piece.range.size());
  bucket.slots[piece.number] = slot.data();
  return slot.data();
}

const float* TreeExchange::read(std::size_t index, const Piece& piece) {
  const BucketInFlight& bucket = buckets_[index];
  if (piece.vector == Piece::kSum) return sum_.host().data() + piece.range.begin;
  if (piece.vector == Piece::kPartial) return bucket.partials[piece.number] + piece.range.begin;
  const VectorRange& slot = plan_->exchange.buckets[index].slots[piece.number];
  return bucket.slots[piece.number] + (piece.range.begin - slot.begin);
}

void TreeExchange::send(int bucket, std::span<const float* const> on_device, Stream& stream) {
  const auto index = static_cast<std::size_t>(bucket);
  buckets_[index].partials = on_host(on_device, ranges_[index], stream);
  start_round(index, 0);
  if (rounds(index).size() == 1) return;
  {
    std::lock_guard lock(mutex_);
    sent_[index] = true;
  }
  changed_.notify_all();
}

// REQUIRES: the pieces that the round sends are final.
void TreeExchange::start_round(std::size_t index, std::size_t number) {
  const int bucket = static_cast<int>(index);
  // Nothing arrives before it is written down as sent.
  OperationLog::note({.kind = Operation::Kind::kSend, .bucket = bucket, .round = static_cast<int>(number)});
  if (number == 0 && shared_memory_transport_ != nullptr)
    shared_memory_transport_->publish_partials(bucket, buckets_[index].partials);
  std::vector<OutMessage> messages;
  bool announced = false;
  for (const OutMove& move : rounds(index)[number].out) {
    const VectorRange& range = move.piece.range;
    if (!shares_with(move.peer)) {
      messages.push_back({.peer = move.peer,
                          .tag = tag_of_round(bucket, number),
                          .bytes = std::as_bytes(std::span(read(index, move.piece), range.size()))});
    } else if (move.piece.vector == Piece::kSum && !announced) {
      // All neighbours read the same piece of the sum, and only in this round.
      std::ranges::copy(part_of(sum_.host(), range), shared_memory_transport_->totals() + range.begin);
      shared_memory_transport_->publish_total(bucket);
      announced = true;
    }
  }
  buckets_[index].out[number] = start(messages, {});
}

// Finds a move's piece in the neighbour's memory. Blocks until the piece is final.
void TreeExchange::look_up(std::size_t index, const InMove& move) {
  const Piece& from = move.from.value();
  const int bucket = static_cast<int>(index);
  if (from.vector == Piece::kPartial) {
    buckets_[index].slots[move.piece.number] =
        shared_memory_transport_->partial(move.peer, bucket, from.number) + from.range.begin;
  } else {
    std::copy_n(shared_memory_transport_->total(move.peer, bucket) + from.range.begin, from.range.size(),
                put(index, move.piece));
  }
}

void TreeExchange::complete_round(std::size_t index, std::size_t number) {
  const ExchangeRound& round = rounds(index)[number];
  Work* const messages = buckets_[index].in[number].get();
  // A later round may be late because its sender waits for another rank.
  if (messages != nullptr && number == 0) waits_.wait(*messages);
  if (messages != nullptr && number > 0) messages->wait();
  for (const InMove& move : round.in)
    if (shares_with(move.peer)) look_up(index, move);
  for (const PieceSum& sum : round.sums) {
    std::vector<const float*> inputs;
    for (const Piece& piece : sum.inputs) inputs.push_back(read(index, piece));
    host_->sum(*host_stream_, sum.sum, inputs, put(index, sum.out), sum.out.range.size());
  }
}

void TreeExchange::serve_rounds() {
  std::unique_lock lock(mutex_);
  for (;;) {
    // finish() returns only once next_ has reached the end, so begin() never resets it while a round is
    // completed.
    changed_.wait(lock, [&] {
      return closing_ || (next_ < followed_.size() && !failure_ && sent_[followed_[next_].bucket]);
    });
    if (closing_) return;
    const RoundOfBucket& round = followed_[next_];
    lock.unlock();
    std::exception_ptr failure;
    try {
      complete_round(round.bucket, round.number);
      start_round(round.bucket, round.number + 1);
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
  waits_.begin();
  for (std::size_t i = 0; i < buckets_.size(); ++i)
    if (rounds(i).size() == 1) complete_round(i, 0);
  if (rounds_thread_.joinable()) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return failure_ || next_ == followed_.size(); });
    if (failure_) std::rethrow_exception(failure_);
  }
  for (std::size_t i = 0; i < buckets_.size(); ++i)
    if (rounds(i).size() > 1) complete_round(i, rounds(i).size() - 1);
  // Sends last: by now they are mostly done. A send may read a neighbour's memory.
  for (BucketInFlight& bucket : buckets_)
    for (const std::unique_ptr<Work>& messages : bucket.out)
      if (messages) messages->wait();
  waits_.end();
  if (shared_memory_transport_ != nullptr) shared_memory_transport_->end_step();
  sum_.to_device();
}

}  // namespace

std::unique_ptr<GradientExchange> make_tree_exchange(ProcessGroup& group, Arithmetic& arithmetic,
                                                     std::vector<VectorRange> buckets,
                                                     SharedMemoryTransport* transport) {
  return std::make_unique<TreeExchange>(group, arithmetic, std::move(buckets), transport);
}

}  // namespace dtrun::worker
