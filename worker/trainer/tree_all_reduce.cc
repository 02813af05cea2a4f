#include "worker/trainer/tree_all_reduce.h"

#include <span>
#include <utility>

#include "worker/base/stop_point.h"
#include "worker/collective/device_exchange.h"

namespace dtrun::worker {

std::vector<VectorRange> summed_buckets(const Program& program) {
  std::vector<VectorRange> ranges;
  for (const VectorRange& bucket : program.buckets)
    ranges.push_back({kStatisticsFloats + bucket.begin, kStatisticsFloats + bucket.end});
  ranges.back().begin = 0;
  return ranges;
}

TreeAllReduce::TreeAllReduce(ProcessGroup& group, Device& device, std::size_t size,
                             std::vector<VectorRange> buckets, int lanes, std::chrono::milliseconds patience)
    : group_(group), device_(device), arithmetic_(device.arithmetic()), size_(size) {
  if (group.size() > 1) {
    sum_ = arithmetic_.allocate(Where::kDevice, size_);
    exchange_ = make_exchange(buckets, patience);
  }
  accumulator_ = std::make_unique<TreeAccumulator>(
      arithmetic_,
      [this] {
        return shared_memory_transport_ ? shared_memory_transport_->memory().allocate(size_)
                                        : arithmetic_.allocate(Where::kDevice, size_);
      },
      std::move(buckets), lanes,
      [this](int bucket, std::span<const float* const> partials, Stream& stream) {
        if (exchange_) exchange_->send(bucket, partials, stream);
        stop_point(StopPoint::kBucketSent);
      });
}

std::unique_ptr<GradientExchange> TreeAllReduce::make_exchange(const std::vector<VectorRange>& ranges,
                                                               std::chrono::milliseconds patience) {
  if (!arithmetic_.device_is_host()) {
    std::unique_ptr<DeviceCommunicator> links =
        device_.make_links({.rank = group_.rank(),
                            .size = group_.size(),
                            .all_gather = [this](std::span<std::byte> all) { group_.all_gather(all); },
                            .check = [this] { group_.check(); },
                            .patience = patience});
    untold_traffic_ = links != nullptr;
    if (links) return make_device_exchange(group_, arithmetic_, ranges, std::move(links));
  } else {
    shared_memory_transport_ =
        std::make_unique<SharedMemoryTransport>(group_, size_, ranges.size(), patience);
  }
  return make_tree_exchange(group_, arithmetic_, ranges, shared_memory_transport_.get());
}

void TreeAllReduce::begin(std::int64_t leaves) {
  const LeafRange range = own(leaves);
  accumulator_->begin(range.begin, range.end, leaves);
  if (exchange_) exchange_->begin(leaves, sum_.data());
}

float* TreeAllReduce::finish() {
  if (!exchange_) return accumulator_->root();
  exchange_->finish();
  return sum_.data();
}

void TreeAllReduce::complete(StepTimes* times) const {
  if (exchange_ && group_.size() <= kMostWaitedFor) times->wait_for = exchange_->peer_waits();
  if (untold_traffic_) return;
  const Traffic traffic = group_.traffic();
  times->sent = traffic.sent;
  times->received = traffic.received;
}

}  // namespace dtrun::worker
