// Runs kernels on the CPU as every test of them does: under several orders of threads and blocks, which must
// all give the same bits, and in memory that tells if somebody writes beside it.
#pragma once

#include <cuda_on_cpu.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <span>
#include <tuple>
#include <vector>

namespace dtrun::worker::cuda::testing {

using bf16 = __nv_bfloat16;

inline float value_of(float value) { return value; }
inline float value_of(bf16 value) { return __bfloat162float(value); }
inline float value_of(std::int32_t value) { return static_cast<float>(value); }

// `count` elements on 64 bytes, or `shift` elements behind; around them 64 bytes that stay as they are. All
// bits are ones at first: NaN.
template <typename T>
class Memory {
 public:
  explicit Memory(std::size_t count, std::size_t shift = 0)
      : count_(count), shift_(shift), chunks_((count + shift) * sizeof(T) / 64 + 3) {
    std::memset(static_cast<void*>(chunks_.data()), 0xFF, chunks_.size() * sizeof(Chunk));
  }
  Memory(const std::vector<T>& values, std::size_t shift = 0) : Memory(values.size(), shift) {
    std::copy(values.begin(), values.end(), data());
  }
  T* data() { return reinterpret_cast<T*>(chunks_.data() + 1) + shift_; }
  const T* data() const { return const_cast<Memory*>(this)->data(); }
  std::size_t size() const { return count_; }
  float operator[](std::size_t i) const { return value_of(data()[i]); }
  std::vector<float> values() const {
    std::vector<float> all(count_);
    for (std::size_t i = 0; i < count_; ++i) all[i] = (*this)[i];
    return all;
  }
  // What lies around the elements is as it was.
  bool intact() const {
    const auto* const all = reinterpret_cast<const unsigned char*>(chunks_.data());
    const auto* const begin = reinterpret_cast<const unsigned char*>(data());
    const auto untouched = [](unsigned char byte) { return byte == 0xFF; };
    return std::all_of(all, begin, untouched) &&
           std::all_of(begin + count_ * sizeof(T), all + chunks_.size() * sizeof(Chunk), untouched);
  }
  bool same_bits(const Memory& other) const {
    return count_ == other.count_ && std::memcmp(data(), other.data(), count_ * sizeof(T)) == 0;
  }

 private:
  struct alignas(64) Chunk {
    unsigned char bytes[64];
  };
  std::size_t count_, shift_;
  std::vector<Chunk> chunks_;
};

// run() enqueues on the default stream, on memory of its own, and returns a tuple of what was written.
// Returns the first order's.
template <typename Run>
auto in_all_orders(const Run& run) {
  using cuda_on_cpu::Order;
  const cuda_on_cpu::Settings before = cuda_on_cpu::settings;
  struct Orders {
    Order order;
    std::uint64_t seed;
  };
  const auto once = [&](Orders orders) {
    cuda_on_cpu::settings.threads = cuda_on_cpu::settings.blocks = orders.order;
    cuda_on_cpu::settings.seed = orders.seed;
    return run();
  };
  const auto first = once({Order::kForward, 1});
  for (const Orders orders :
       {Orders{Order::kReverse, 1}, Orders{Order::kRandom, 1}, Orders{Order::kRandom, 2}}) {
    const auto again = once(orders);
    const bool same = [&]<std::size_t... kAt>(std::index_sequence<kAt...>) {
      return (std::get<kAt>(first).same_bits(std::get<kAt>(again)) && ...);
    }
    (std::make_index_sequence<std::tuple_size_v<std::remove_const_t<decltype(first)>>>{});
    CHECK_MESSAGE(same, "another order of threads and blocks gives other bits");
  }
  CHECK_MESSAGE(std::apply([](const auto&... all) { return (all.intact() && ...); }, first),
                "something beside the output was written");
  cuda_on_cpu::settings = before;
  return first;
}

// Normal, around 0.
template <typename T>
std::vector<T> random_values(unsigned seed, std::size_t count, float deviation = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<T> values(count);
  for (T& value : values) value = T(normal(random));
  return values;
}

// What storing as T may cost, relative to the value.
template <typename T>
inline constexpr double kRounding = sizeof(T) == 2 ? 1.0 / 256 : 1.0 / (1 << 24);

// |got - wanted| <= rounding to T + tolerance * (|wanted| + scale), or both are NaN.
template <typename T>
void check_near(const Memory<T>& got, const std::vector<double>& wanted, double tolerance, double scale = 1) {
  REQUIRE(got.size() == wanted.size());
  double worst = 0;
  std::size_t at = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const double size = std::abs(wanted[i]);
    const double allowed = kRounding<T> * size + tolerance * (size + scale);
    double excess = std::abs(static_cast<double>(got[i]) - wanted[i]) / allowed;
    if (std::isnan(wanted[i])) excess = std::isnan(got[i]) ? 0 : 2;
    if (!std::isnan(wanted[i]) && std::isnan(got[i])) excess = 1e300;
    if (excess > worst) worst = excess, at = i;
  }
  if (worst > 1) CHECK_MESSAGE(false, "element " << at << " is " << got[at] << ", not " << wanted[at]);
}

// A test case for each type of activations; TEST_CASE_TEMPLATE's list.
#define DTRUN_ACTIVATIONS float, dtrun::worker::cuda::testing::bf16

}  // namespace dtrun::worker::cuda::testing
