#include "worker/collective/device_exchange.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "worker/base/error.h"
#include "worker/base/operation_log.h"
#include "worker/core/tree.h"
#include "worker/reduction/exchange_plan.h"

namespace dtrun::worker {
namespace {

class DeviceExchange final : public GradientExchange {
 public:
  DeviceExchange(ProcessGroup& group, Arithmetic& arithmetic, std::vector<VectorRange> buckets,
                 std::unique_ptr<DeviceCommunicator> links)
      : group_(group),
        arithmetic_(arithmetic),
        ranges_(std::move(buckets)),
        stream_(arithmetic.make_stream()),
        links_(std::move(links)),
        ranks_of_host_(ranks_of_each_host(links_->hosts())) {
    stream_->set_name("exchange");
  }

  // Waits for enqueued work, since its memory is freed next.
  ~DeviceExchange() override {
    links_.reset();
    try {
      stream_->wait();
    } catch (const WorkerError&) {
      // The device failed and does no more work.
    }
  }

  void begin(std::int64_t leaves, float* sum) override {
    std::lock_guard lock(mutex_);
    plan_ = &plan_of(leaves);
    sum_ = sum;
    if (inbox_.size() < plan_->inbox) inbox_ = arithmetic_.allocate(Where::kDevice, plan_->inbox);
    next_ = 0;
    ready_.assign(ranges_.size(), std::nullopt);
    if (plan_->own_blocks > 0) return;
    for (std::optional<ReadyBucket>& bucket : ready_) bucket.emplace();
    enqueue_ready();
  }

  void send(int bucket, std::span<const float* const> partials, Stream& stream) override {
    std::lock_guard lock(mutex_);
    ready_[static_cast<std::size_t>(bucket)] = {.partials = {partials.begin(), partials.end()},
                                                .made = stream.record()};
    enqueue_ready();
  }

  void finish() override {
    std::lock_guard lock(mutex_);
    const OperationLog::Wait written({.kind = Operation::Kind::kDevices});
    links_->wait(*stream_);
  }

  void end() override { group_.barrier(); }

 private:
  struct ReadyBucket {
    std::vector<const float*> partials;
    Event made;
  };

  const ExchangePlan& plan_of(std::int64_t leaves) {
    const auto known = plans_.find(leaves);
    if (known != plans_.end()) return known->second;
    return plans_
        .emplace(leaves,
                 plan_exchange(leaves, group_.rank(), group_.size(), ranks_of_host_, ranges_, kDirectBytes))
        .first->second;
  }

  // Enqueues buckets in ascending order, the same on all ranks: a device carries exchanges out one by one.
  void enqueue_ready() {
    for (; next_ < ready_.size() && ready_[next_]; ++next_) {
      stream_->after(ready_[next_]->made);
      carry_out(plan_->rounds_of(next_));
    }
    if (next_ < ready_.size()) return;
    for (std::size_t group = ready_.size(); group < plan_->groups(); ++group)
      carry_out(plan_->rounds_of(group));
  }

  float* at(std::size_t bucket, const Piece& piece) {
    float* const vector = piece.vector == Piece::kSum ? sum_
                          : piece.vector == Piece::kInbox
                              ? inbox_.data()
                              : const_cast<float*>(ready_[bucket]->partials[piece.number]);
    return vector + piece.range.begin;
  }

  void carry_out(const std::vector<RoundOfBucket>& rounds) {
    std::vector<OutFloats> out;
    std::vector<InFloats> in;
    for (const auto& [bucket, number, round] : rounds) {
      for (const OutMove& move : round->out)
        out.push_back(
            {.peer = move.peer, .floats = at(bucket, move.piece), .count = move.piece.range.size()});
      for (const InMove& move : round->in)
        in.push_back({.peer = move.peer, .floats = at(bucket, move.piece), .count = move.piece.range.size()});
    }
    if (!out.empty() || !in.empty()) links_->exchange(*stream_, out, in);
    for (const auto& [bucket, number, round] : rounds) {
      for (const PieceSum& sum : round->sums) {
        std::vector<const float*> inputs;
        for (const Piece& piece : sum.inputs) inputs.push_back(at(bucket, piece));
        arithmetic_.sum(*stream_, sum.sum, inputs, at(bucket, sum.out), sum.out.range.size());
      }
    }
  }

  ProcessGroup& group_;
  Arithmetic& arithmetic_;
  const std::vector<VectorRange> ranges_;
  std::map<std::int64_t, ExchangePlan> plans_;  // by leaves

  std::mutex
      mutex_;  // guards the members below; held while work is enqueued, so that buckets keep their order
  Buffer inbox_;
  const ExchangePlan* plan_ = nullptr;
  float* sum_ = nullptr;
  std::vector<std::optional<ReadyBucket>> ready_;  // [bucket]
  std::size_t next_ = 0;                           // bucket to enqueue
  const std::unique_ptr<Stream> stream_;
  std::unique_ptr<DeviceCommunicator> links_;
  const int ranks_of_host_;
};

}  // namespace

std::unique_ptr<GradientExchange> make_device_exchange(ProcessGroup& group, Arithmetic& arithmetic,
                                                       std::vector<VectorRange> buckets,
                                                       std::unique_ptr<DeviceCommunicator> links) {
  return std::make_unique<DeviceExchange>(group, arithmetic, std::move(buckets), std::move(links));
}

}  // namespace dtrun::worker
