#include <algorithm>
#include <utility>

#include "worker/collective/gradient_exchange.h"
#include "worker/core/tree.h"

namespace dtrun::worker {

namespace {

class RingExchange final : public GradientExchange {
 public:
  RingExchange(Collective& collective, std::vector<VectorRange> buckets)
      : collective_(collective), buckets_(std::move(buckets)) {}

  void begin(std::int64_t leaves, std::span<float> sum) override {
    sum_ = sum;
    const LeafRange own = leaves_of_rank(leaves, collective_.rank(), collective_.size());
    if (own.begin == own.end) std::fill(sum_.begin(), sum_.end(), 0.0f);
  }

  void send(int bucket, std::span<const float* const> partials) override {
    const VectorRange range = buckets_[bucket];
    const std::span<float> sum = sum_.subspan(range.begin, range.size());
    std::copy_n(partials[0] + range.begin, range.size(), sum.begin());
    for (const float* partial : partials.subspan(1)) add_right(sum, {partial + range.begin, range.size()});
  }

  void finish() override { collective_.all_reduce_sum(sum_); }

 private:
  Collective& collective_;
  const std::vector<VectorRange> buckets_;
  std::span<float> sum_;
};

}  // namespace

std::unique_ptr<GradientExchange> make_ring_exchange(Collective& collective,
                                                     std::vector<VectorRange> buckets) {
  return std::make_unique<RingExchange>(collective, std::move(buckets));
}

}  // namespace dtrun::worker
