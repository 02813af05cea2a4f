#include <algorithm>
#include <utility>

#include "worker/collective/gradient_exchange.h"
#include "worker/collective/host_sum.h"
#include "worker/core/tree.h"

namespace dtrun::worker {

namespace {

class RingExchange final : public GradientExchange {
 public:
  RingExchange(Collective& collective, Arithmetic& arithmetic, std::vector<VectorRange> buckets)
      : collective_(collective),
        arithmetic_(arithmetic),
        buckets_(std::move(buckets)),
        sum_(arithmetic, size_of(buckets_)) {}

  void begin(std::int64_t leaves, float* sum) override {
    sum_.begin(sum);
    const LeafRange own = leaves_of_rank(leaves, collective_.rank(), collective_.size());
    if (own.begin == own.end) std::ranges::fill(sum_.host(), 0.0f);
  }

  void send(int bucket, std::span<const float* const> partials, Stream& stream) override {
    const VectorRange range = buckets_[bucket];
    float* const sum = sum_.device() + range.begin;
    arithmetic_.copy(stream, sum, partials[0] + range.begin, range.size());
    for (const float* partial : partials.subspan(1))
      arithmetic_.add_right(stream, sum, partial + range.begin, range.size());
    sum_.to_host(range, stream);
    stream.wait();
  }

  void finish() override {
    collective_.all_reduce_sum(sum_.host());
    sum_.to_device();
  }

 private:
  Collective& collective_;
  Arithmetic& arithmetic_;
  const std::vector<VectorRange> buckets_;
  HostSum sum_;
};

}  // namespace

std::unique_ptr<GradientExchange> make_ring_exchange(Collective& collective, Arithmetic& arithmetic,
                                                     std::vector<VectorRange> buckets) {
  return std::make_unique<RingExchange>(collective, arithmetic, std::move(buckets));
}

}  // namespace dtrun::worker
