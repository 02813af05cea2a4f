#include <algorithm>
#include <utility>

#include "worker/collective/gradient_exchange.h"
#include "worker/collective/host_sum.h"
#include "worker/core/tree.h"

namespace dtrun::worker {

namespace {

class RingExchange final : public GradientExchange {
 public:
  RingExchange(ProcessGroup& group, Arithmetic& arithmetic, std::vector<VectorRange> buckets)
      : group_(group),
        arithmetic_(arithmetic),
        buckets_(std::move(buckets)),
        sum_(arithmetic, size_of(buckets_)) {}

  void begin(std::int64_t leaves, float* sum) override {
    sum_.begin(sum);
    const LeafRange own = leaves_of_rank(leaves, group_.rank(), group_.size());
    if (own.begin == own.end) std::ranges::fill(sum_.host(), 0.0f);
  }

  void send(int bucket, std::span<const float* const> partials, Stream& stream) override {
    const VectorRange range = buckets_[bucket];
    float* const sum = sum_.device() + range.begin;
    arithmetic_.copy(stream, sum, partials[0] + range.begin, range.size());
    for (const float* partial : partials.subspan(1))
      arithmetic_.accumulate(stream, sum, partial + range.begin, range.size());
    sum_.to_host(range, stream);
    stream.wait();
  }

  void finish() override {
    group_.all_reduce_sum(sum_.host());
    sum_.to_device();
  }

 private:
  ProcessGroup& group_;
  Arithmetic& arithmetic_;
  const std::vector<VectorRange> buckets_;
  HostSum sum_;
};

}  // namespace

std::unique_ptr<GradientExchange> make_ring_exchange(ProcessGroup& group, Arithmetic& arithmetic,
                                                     std::vector<VectorRange> buckets) {
  return std::make_unique<RingExchange>(group, arithmetic, std::move(buckets));
}

}  // namespace dtrun::worker
