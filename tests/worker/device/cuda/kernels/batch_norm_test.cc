// Batch norm against the definition in fp64, with samples that are not real.
#include "worker/device/cuda/kernels/batch_norm.h"

#include "tests/worker/device/cuda/kernels/run.h"

namespace dtrun::batch_norm_test {

using namespace dtrun::worker;
using namespace dtrun::worker::cuda::testing;
using cuda::BatchShape;

namespace {

struct BatchCase {
  BatchShape shape;
  std::uint32_t real;
};

// All in fp64, by channel.
struct ExpectedBatch {
  std::vector<double> out, d_in, d_weight, d_bias, moments, sums;
};

constexpr float kBatchEpsilon = 0.01f;

template <typename T>
struct BatchProblem {
  explicit BatchProblem(const BatchCase& one)
      : s(one.shape),
        real(one.real),
        in(random_values<T>(1, s.samples * s.channels * s.pixels, 3)),
        d(random_values<T>(2, in.size())),
        old(random_values<T>(3, in.size())),
        weight(random_values<float>(4, s.channels)),
        bias(random_values<float>(5, s.channels)),
        mean(random_values<float>(6, s.channels)),
        variance(random_values<float>(7, s.channels)),
        old_weight(random_values<float>(8, s.channels)) {
    for (float& value : variance) value = 1 + std::abs(value);
  }

  // Calls visit(offset) for the channel's values in samples before `end`.
  template <typename Visit>
  void each(std::size_t c, std::size_t end, const Visit& visit) const {
    for (std::size_t n = 0; n < end; ++n)
      for (std::size_t i = 0; i < s.pixels; ++i) visit((n * s.channels + c) * s.pixels + i);
  }
  double x(std::size_t at) const { return value_of(in[at]); }

  ExpectedBatch expected(bool training, bool add) const {
    ExpectedBatch e{.out = std::vector<double>(in.size()),
                    .d_in = std::vector<double>(in.size()),
                    .d_weight = {},
                    .d_bias = {},
                    .moments = {},
                    .sums = std::vector<double>(2 * s.channels)};
    for (std::size_t i = 0; add && i < in.size(); ++i) e.d_in[i] = value_of(old[i]);
    const double count = static_cast<double>(real * s.pixels);
    for (std::size_t c = 0; c < s.channels; ++c) {
      double m = 0, v = 0, sum = 0, sum_x = 0;
      each(c, real, [&](std::size_t at) { m += x(at) / count; });
      each(c, real, [&](std::size_t at) { v += (x(at) - m) * (x(at) - m) / count; });
      if (!training) m = mean[c], v = variance[c];
      const double r = 1 / std::sqrt(v + static_cast<double>(kBatchEpsilon));
      each(c, s.samples, [&](std::size_t at) { e.out[at] = (x(at) - m) * r * weight[c] + bias[c]; });
      each(c, real,
           [&](std::size_t at) { sum += value_of(d[at]), sum_x += value_of(d[at]) * (x(at) - m) * r; });
      each(c, real, [&](std::size_t at) {
        e.d_in[at] += weight[c] * r * (value_of(d[at]) - sum / count - (x(at) - m) * r * sum_x / count);
        e.sums[c] += (x(at) - mean[c]) / static_cast<double>(s.pixels);
        e.sums[s.channels + c] += std::pow(x(at) - mean[c], 2) / static_cast<double>(s.pixels);
      });
      e.d_weight.push_back(sum_x + (add ? old_weight[c] : 0));
      e.d_bias.push_back(sum + (add ? old_weight[c] : 0));
      e.moments.insert(e.moments.end(), {m, r, v});
    }
    return e;
  }

  const BatchShape s;
  const std::uint32_t real;
  std::vector<T> in, d, old;
  std::vector<float> weight, bias, mean, variance, old_weight;
};

}  // namespace

TEST_CASE_TEMPLATE("a batch norm sees the real samples, or in an evaluation its running statistics", T,
                   DTRUN_ACTIVATIONS) {
  for (const BatchCase& one : {BatchCase{{1, 1, 2}, 1}, {{5, 3, 7}, 5}, {{4, 2, 300}, 3}, {{20, 9, 1}, 17}})
    for (const bool add : {false, true}) {
      CAPTURE(one.shape.pixels);
      CAPTURE(add);
      const BatchProblem<T> p(one);
      const BatchShape& s = one.shape;
      const auto [out, evaluated, moments, unused, d_in, d_weight, d_bias, sums] = in_all_orders([&] {
        const Memory<T> in(p.in), d(p.d);
        const Memory<float> weight(p.weight, 1), bias(p.bias, 1), mean(p.mean, 1), variance(p.variance, 1);
        const Memory<std::int32_t> real(std::vector<std::int32_t>{static_cast<std::int32_t>(one.real)});
        const auto* const count = reinterpret_cast<const std::uint32_t*>(real.data());
        const auto gradient = [&] {
          return add ? Memory<float>(p.old_weight, 1) : Memory<float>(s.channels, 1);
        };
        std::tuple all{Memory<T>(p.in.size()),
                       Memory<T>(p.in.size()),
                       Memory<float>(3 * s.channels),
                       Memory<float>(3 * s.channels),
                       add ? Memory<T>(p.old) : Memory<T>(p.in.size()),
                       gradient(),
                       gradient(),
                       Memory<float>(2 * s.channels, 1)};
        auto& [out, evaluated, moments, unused, d_in, d_weight, d_bias, sums] = all;
        for (const bool training : {false, true})
          cuda::batch_norm<T>(nullptr, s, count, training, kBatchEpsilon, in.data(), weight.data(),
                              bias.data(), mean.data(), variance.data(),
                              training ? moments.data() : unused.data(),
                              training ? out.data() : evaluated.data());
        cuda::batch_norm_backward<T>(nullptr, s, count, in.data(), weight.data(), mean.data(),
                                     std::as_const(moments).data(), d.data(), add, d_in.data(), add,
                                     d_weight.data(), d_bias.data(), sums.data());
        synchronize();
        return all;
      });
      const ExpectedBatch e = p.expected(true, add);
      check_near(out, e.out, 2e-6, 5);
      check_near(evaluated, p.expected(false, add).out, 2e-6, 5);
      check_near(moments, e.moments, 2e-6, 5);
      check_near(d_in, e.d_in, 5e-6, 10);
      check_near(d_weight, e.d_weight, 2e-6, 50);
      check_near(d_bias, e.d_bias, 2e-6, 50);
      check_near(sums, e.sums, 2e-6, 50);
    }
}

TEST_CASE_TEMPLATE("the gradient of samples that were normalised with others has the means of them all", T,
                   DTRUN_ACTIVATIONS) {
  const BatchProblem<T> p({{4, 2, 300}, 3});
  const BatchShape& s = p.s;
  const std::vector<float> of_all = random_values<float>(9, 2 * s.channels);
  std::vector<float> moments_of_all;
  std::vector<double> wanted(p.in.size()), own(s.channels);
  for (std::size_t c = 0; c < s.channels; ++c) {
    const float scale = 1 / std::sqrt(p.variance[c]);
    moments_of_all.insert(moments_of_all.end(), {p.mean[c], scale, p.variance[c]});
    p.each(c, p.real, [&](std::size_t at) {
      const double d = value_of(p.d[at]), x = (p.x(at) - p.mean[c]) * scale;
      wanted[at] = p.weight[c] * scale * (d - of_all[c] - x * of_all[s.channels + c]);
      own[c] += d * x;
    });
  }
  const auto [d_in, d_weight, d_bias, sums] = in_all_orders([&] {
    const Memory<T> in(p.in), d(p.d);
    const Memory<float> weight(p.weight), mean(p.mean), moments(moments_of_all), means(of_all);
    const Memory<std::int32_t> real(std::vector<std::int32_t>{static_cast<std::int32_t>(p.real)});
    std::tuple all{Memory<T>(p.in.size()), Memory<float>(s.channels), Memory<float>(s.channels),
                   Memory<float>(2 * s.channels)};
    auto& [d_in, d_weight, d_bias, sums] = all;
    cuda::batch_norm_backward<T>(nullptr, s, reinterpret_cast<const std::uint32_t*>(real.data()), in.data(),
                                 weight.data(), mean.data(), moments.data(), d.data(), false, d_in.data(),
                                 false, d_weight.data(), d_bias.data(), sums.data(), means.data());
    synchronize();
    return all;
  });
  check_near(d_in, wanted, 5e-6, 10);
  check_near(d_weight, own, 2e-6, 50);  // of these samples alone
}

}  // namespace dtrun::batch_norm_test
