#include "worker/core/sampler.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "worker/core/philox.h"

namespace dtrun::worker {

std::vector<std::uint32_t> epoch_order(std::uint64_t seed, std::int64_t epoch, std::int64_t samples) {
  std::vector<std::uint32_t> order(static_cast<std::size_t>(samples));
  std::iota(order.begin(), order.end(), 0u);
  const auto bits = static_cast<std::uint64_t>(epoch);
  const RandomStream random(seed, RandomUse::kShuffle, static_cast<std::uint32_t>(bits),
                            static_cast<std::uint32_t>(bits >> 32));
  for (std::size_t i = order.size(); i > 1; --i) {
    // One draw for each place: 0..i-1 by multiplication. Its bias is below i/2^32, and no draw is ever
    // rejected, so place i always uses number i of the stream.
    const std::size_t other = static_cast<std::size_t>(std::uint64_t{random.bits(i)} * i >> 32);
    std::swap(order[i - 1], order[other]);
  }
  return order;
}

Schedule::Schedule(std::int64_t dataset_size, int global_batch, int micro_batch, int epochs,
                   std::int64_t max_steps)
    : dataset_size_(dataset_size),
      steps_per_epoch_((dataset_size + global_batch - 1) / global_batch),
      total_steps_(max_steps > 0 ? max_steps : steps_per_epoch_ * epochs),
      global_batch_(global_batch),
      micro_batch_(micro_batch) {}

StepPlan Schedule::step(std::int64_t step) const {
  StepPlan plan;
  plan.epoch = step / steps_per_epoch_;
  plan.first_sample = step % steps_per_epoch_ * global_batch_;
  plan.samples = std::min<std::int64_t>(global_batch_, dataset_size_ - plan.first_sample);
  plan.leaves = (plan.samples + micro_batch_ - 1) / micro_batch_;
  plan.first_leaf = step * ((global_batch_ + micro_batch_ - 1) / micro_batch_);
  return plan;
}

}  // namespace dtrun::worker
