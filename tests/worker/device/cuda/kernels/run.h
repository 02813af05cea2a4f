// Runs kernels as every test of them does: under several orders of threads and blocks, which must all give
// the same bits, and in device memory that reveals writes beside it. On the stand-in for a GPU, and on one.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/worker/device/cuda/orders.h"

namespace dtrun::worker::cuda::testing {

using bf16 = __nv_bfloat16;

inline float value_of(float value) { return value; }
inline float value_of(double value) { return static_cast<float>(value); }
inline float value_of(bf16 value) { return __bfloat162float(value); }
inline float value_of(std::int32_t value) { return static_cast<float>(value); }

// Until all that was enqueued is done.
inline void synchronize() {
  REQUIRE(cudaGetLastError() == cudaSuccess);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
}

// Device memory: `count` elements on 64 bytes, or `shift` elements behind; around them 64 bytes that stay as
// they are. All bits are ones at first: NaN. REQUIRES: synchronize() before reading it.
template <typename T>
class Memory {
 public:
  explicit Memory(std::size_t count, std::size_t shift = 0) : Memory(std::vector<T>(), count, shift) {}
  explicit Memory(const std::vector<T>& values, std::size_t shift = 0)
      : Memory(values, values.size(), shift) {}
  Memory(const Memory& other) : count_(other.count_), shift_(other.shift_), host_(other.fetched()) {
    upload();
  }
  Memory(Memory&&) noexcept = default;
  Memory& operator=(Memory other) noexcept {
    count_ = other.count_, shift_ = other.shift_;
    host_ = std::move(other.host_), device_ = std::move(other.device_);
    stale_ = other.stale_;
    return *this;
  }
  ~Memory() = default;

  // For kernels.
  T* data() {
    stale_ = true;
    return reinterpret_cast<T*>(device_.get() + kMargin) + shift_;
  }
  const T* data() const { return reinterpret_cast<const T*>(device_.get() + kMargin) + shift_; }

  std::size_t size() const { return count_; }
  // A copy in host memory, until data() is asked for again.
  const T* host() const { return reinterpret_cast<const T*>(fetched().data() + kMargin) + shift_; }
  float operator[](std::size_t i) const { return value_of(host()[i]); }
  std::vector<float> values() const {
    std::vector<float> all(count_);
    for (std::size_t i = 0; i < count_; ++i) all[i] = (*this)[i];
    return all;
  }
  // Whether the memory around the elements is unchanged.
  bool intact() const {
    const std::span<const unsigned char> all = fetched();
    const auto untouched = [](unsigned char byte) { return byte == 0xFF; };
    const std::size_t begin = kMargin + shift_ * sizeof(T);
    return std::ranges::all_of(all.first(begin), untouched) &&
           std::ranges::all_of(all.subspan(begin + count_ * sizeof(T)), untouched);
  }
  bool same_bits(const Memory& other) const {
    return count_ == other.count_ && std::memcmp(host(), other.host(), count_ * sizeof(T)) == 0;
  }

 private:
  struct Free {
    void operator()(unsigned char* pointer) const { cudaFree(pointer); }
  };
  static constexpr std::size_t kMargin = 64;

  Memory(const std::vector<T>& values, std::size_t count, std::size_t shift)
      : count_(count), shift_(shift), host_((count + shift) * sizeof(T) + 2 * kMargin, 0xFF) {
    if (!values.empty())
      std::memcpy(host_.data() + kMargin + shift * sizeof(T), values.data(), count * sizeof(T));
    upload();
  }
  void upload() {
    void* pointer = nullptr;
    REQUIRE(cudaMalloc(&pointer, host_.size()) == cudaSuccess);
    device_.reset(static_cast<unsigned char*>(pointer));
    REQUIRE(cudaMemcpy(pointer, host_.data(), host_.size(), cudaMemcpyHostToDevice) == cudaSuccess);
    // From the host's memory it may be under way when the call returns, and this may be freed at once.
    REQUIRE(cudaStreamSynchronize(nullptr) == cudaSuccess);
  }
  const std::vector<unsigned char>& fetched() const {
    if (stale_) {
      REQUIRE(cudaMemcpy(host_.data(), device_.get(), host_.size(), cudaMemcpyDeviceToHost) == cudaSuccess);
      stale_ = false;
    }
    return host_;
  }

  std::size_t count_, shift_;
  mutable std::vector<unsigned char> host_;
  mutable bool stale_ = false;  // kernels may have written since host_ was fetched
  std::unique_ptr<unsigned char, Free> device_;
};

// run() enqueues on the default stream, on memory of its own, and returns a tuple of the results. Returns the
// first order's.
template <typename Run>
auto in_all_orders(const Run& run) {
  const auto once = [&](unsigned number) {
    const OtherOrder order(number);
    return run();
  };
  const auto first = once(0);
  for (const unsigned number : {1, 2, 3}) {
    const auto again = once(number);
    const bool same = [&]<std::size_t... kAt>(std::index_sequence<kAt...>) {
      return (std::get<kAt>(first).same_bits(std::get<kAt>(again)) && ...);
    }
    (std::make_index_sequence<std::tuple_size_v<std::remove_const_t<decltype(first)>>>{});
    CHECK_MESSAGE(same, "another order of threads and blocks gives other bits");
  }
  CHECK_MESSAGE(std::apply([](const auto&... all) { return (all.intact() && ...); }, first),
                "something beside the output was written");
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

// The relative error of storing a value as T.
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
