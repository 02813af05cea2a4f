// The kernels for trying libraries out.
#include "worker/device/cuda/kernels/trial.h"

#include <limits>
#include <numeric>

#include "tests/worker/device/cuda/kernels/run.h"

namespace dtrun::trial_test {

using namespace dtrun::worker::cuda::testing;
namespace cuda = dtrun::worker::cuda;

TEST_CASE_TEMPLATE("numbers are scattered evenly, each seed's own", T, DTRUN_ACTIVATIONS) {
  constexpr std::size_t kCount = 5000;
  const auto numbers = [](unsigned seed) {
    return std::get<0>(in_all_orders([&] {
      std::tuple all{Memory<T>(kCount)};
      cuda::scatter<T>(nullptr, kCount, seed, 4, std::get<0>(all).data());
      synchronize();
      return all;
    }));
  };
  const std::vector<float> first = numbers(1).values(), second = numbers(2).values();
  const auto mean_of_products = [](const std::vector<float>& a, const std::vector<float>& b) {
    return std::inner_product(a.begin(), a.end(), b.begin(), 0.0) / kCount;
  };
  CHECK(*std::ranges::max_element(first) <= 4);
  CHECK(*std::ranges::min_element(first) >= -4);
  CHECK(std::accumulate(first.begin(), first.end(), 0.0) / kCount == doctest::Approx(0).epsilon(0.1));
  CHECK(mean_of_products(first, first) == doctest::Approx(16.0 / 3).epsilon(0.1));
  CHECK(std::abs(mean_of_products(first, second)) < 0.3);
}

TEST_CASE_TEMPLATE("the largest difference is found wherever it is, and NaN is the largest", T,
                   DTRUN_ACTIVATIONS) {
  constexpr std::size_t kCount = 1000;
  const std::vector<T> left(kCount, T(-2.0f));
  const auto apart = [&](const std::vector<T>& right) {
    const auto [result] = in_all_orders([&] {
      const Memory<T> a(left), b(right);
      std::tuple all{Memory<float>(std::vector<float>(2))};
      cuda::compare<T>(nullptr, kCount, a.data(), b.data(), std::get<0>(all).data());
      synchronize();
      return all;
    });
    return result.values();
  };
  CHECK(apart(left) == std::vector<float>{0, 2});
  for (const std::size_t at : {std::size_t{0}, std::size_t{255}, kCount - 1}) {
    std::vector<T> right = left;
    right[at] = T(3.0f);
    CHECK(apart(right) == std::vector<float>{5, 2});
    right[at] = T(std::numeric_limits<float>::quiet_NaN());
    CHECK(apart(right) == std::vector<float>{std::numeric_limits<float>::infinity(), 2});
  }
}

}  // namespace dtrun::trial_test
