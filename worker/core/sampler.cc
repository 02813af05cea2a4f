#include "worker/core/sampler.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

namespace dtrun::worker {

namespace {

std::vector<std::uint32_t> shuffle(const RandomStream& random, std::int64_t samples) {
  std::vector<std::uint32_t> order(static_cast<std::size_t>(samples));
  std::iota(order.begin(), order.end(), 0u);
  for (std::size_t i = order.size(); i > 1; --i) {
    // One draw for each place: 0..i-1 by multiplication. Its bias is below i/2^32, and no draw is ever
    // rejected, so place i always uses number i of the stream.
    const std::size_t other = static_cast<std::size_t>(std::uint64_t{random.bits(i)} * i >> 32);
    std::swap(order[i - 1], order[other]);
  }
  return order;
}

// Even, so that halves of different widths end where they began.
constexpr std::uint64_t kFeistelRounds = 8;

constexpr std::uint64_t low_mask(int bits) { return (std::uint64_t{1} << bits) - 1; }

}  // namespace

IndexPermutation::IndexPermutation(const RandomStream& random, std::int64_t size)
    : random_(random), size_(static_cast<std::uint64_t>(size)) {
  const int bits = std::bit_width(size_ - 1);
  low_bits_ = bits / 2;
  high_bits_ = bits - low_bits_;
}

std::uint64_t IndexPermutation::encrypt(std::uint64_t value) const {
  int left_bits = high_bits_, right_bits = low_bits_;
  std::uint64_t left = value >> low_bits_, right = value & low_mask(low_bits_);
  for (std::uint64_t round = 0; round < kFeistelRounds; ++round) {
    const std::uint64_t mixed = (left ^ random_.bits(right * kFeistelRounds + round)) & low_mask(left_bits);
    left = std::exchange(right, mixed);
    std::swap(left_bits, right_bits);
  }
  return left << low_bits_ | right;
}

// Walking a permutation of 0..2^bits-1 from a value below size leads below size again, at the latest where it
// began. At most half of the values are not below size, so the walk takes at most two steps on average.
std::uint32_t IndexPermutation::at(std::int64_t i) const {
  auto value = static_cast<std::uint64_t>(i);
  do value = encrypt(value);
  while (value >= size_);
  return static_cast<std::uint32_t>(value);
}

EpochOrder::EpochOrder(std::uint64_t seed, std::int64_t epoch, std::int64_t samples) {
  const auto bits = static_cast<std::uint64_t>(epoch);
  const RandomStream random(seed, RandomUse::kShuffle, static_cast<std::uint32_t>(bits),
                            static_cast<std::uint32_t>(bits >> 32));
  if (samples <= kLargestShuffle) {
    shuffled_ = shuffle(random, samples);
  } else {
    computed_.emplace(random, samples);
  }
}

BatchSampler::BatchSampler(std::int64_t dataset_size, int global_batch, int micro_batch, int epochs,
                           std::int64_t max_steps, bool drop_last)
    : dataset_size_(dataset_size),
      steps_per_epoch_((dataset_size + (drop_last ? 0 : global_batch - 1)) / global_batch),
      total_steps_(max_steps > 0 ? max_steps : steps_per_epoch_ * epochs),
      global_batch_(global_batch),
      micro_batch_(micro_batch) {}

StepPlan BatchSampler::step(std::int64_t step) const {
  StepPlan plan;
  plan.epoch = step / steps_per_epoch_;
  plan.first_sample = step % steps_per_epoch_ * global_batch_;
  plan.samples = std::min<std::int64_t>(global_batch_, dataset_size_ - plan.first_sample);
  plan.leaves = (plan.samples + micro_batch_ - 1) / micro_batch_;
  plan.first_leaf = step * ((global_batch_ + micro_batch_ - 1) / micro_batch_);
  return plan;
}

}  // namespace dtrun::worker
