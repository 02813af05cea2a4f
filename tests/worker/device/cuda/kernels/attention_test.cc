// Attention and its gradient against the definition in fp64.
#include "worker/device/cuda/kernels/attention.h"

#include "tests/worker/device/cuda/kernels/run.h"

namespace dtrun::attention_test {

using namespace dtrun::worker;
using namespace dtrun::worker::cuda::testing;
using cuda::AttentionShape;

namespace {

// One sample and head at a time, all scores at once. `stored`: the output as backward reads it, which bf16
// has rounded; null: `out`.
struct Reference {
  std::vector<double> out, statistics, gradient;  // gradient: of qkv

  template <typename T>
  Reference(const AttentionShape& s, const std::vector<T>& qkv, const std::vector<T>& d_out,
            const Memory<T>* stored = nullptr)
      : out(d_out.size()), statistics(cuda::attention_statistics(s)), gradient(qkv.size()) {
    const int width = s.width();
    const double scale = 1 / std::sqrt(static_cast<double>(s.head_size));
    for (int n = 0; n < s.samples; ++n)
      for (int h = 0; h < s.heads; ++h) {
        // Part 0, 1, 2: query, key, value.
        const auto at = [&](int token, int part, int i) {
          return (static_cast<std::size_t>(n) * s.tokens + token) * 3 * width + part * width +
                 h * s.head_size + i;
        };
        const auto to = [&](int token, int i) {
          return (static_cast<std::size_t>(n) * s.tokens + token) * width + h * s.head_size + i;
        };
        for (int query = 0; query < s.tokens; ++query) {
          std::vector<double> weights(query + 1), d_weights(query + 1);
          for (int key = 0; key <= query; ++key)
            for (int i = 0; i < s.head_size; ++i)
              weights[key] += scale * value_of(qkv[at(query, 0, i)]) * value_of(qkv[at(key, 1, i)]);
          const double largest = *std::max_element(weights.begin(), weights.end());
          double sum = 0, mean = 0;
          for (double& weight : weights) sum += weight = std::exp(weight - largest);
          statistics[(static_cast<std::size_t>(n) * s.heads + h) * s.tokens + query] =
              largest + std::log(sum);
          for (double& weight : weights) weight /= sum;
          for (int key = 0; key <= query; ++key) {
            for (int i = 0; i < s.head_size; ++i) {
              const double d = value_of(d_out[to(query, i)]);
              out[to(query, i)] += weights[key] * value_of(qkv[at(key, 2, i)]);
              gradient[at(key, 2, i)] += weights[key] * d;
              d_weights[key] += d * value_of(qkv[at(key, 2, i)]);
            }
          }
          for (int i = 0; i < s.head_size; ++i)
            mean += value_of(d_out[to(query, i)]) *
                    (stored == nullptr ? out[to(query, i)] : (*stored)[to(query, i)]);
          for (int key = 0; key <= query; ++key) {
            const double d = weights[key] * (d_weights[key] - mean) * scale;
            for (int i = 0; i < s.head_size; ++i) {
              gradient[at(query, 0, i)] += d * value_of(qkv[at(key, 1, i)]);
              gradient[at(key, 1, i)] += d * value_of(qkv[at(query, 0, i)]);
            }
          }
        }
      }
  }
};

}  // namespace

TEST_CASE_TEMPLATE("attention and its gradient, heads of any size over any number of tokens", T,
                   DTRUN_ACTIVATIONS) {
  for (const AttentionShape& s : {AttentionShape{1, 1, 1, 1},
                                  {2, 3, 2, 3},
                                  {1, 7, 3, 64},
                                  {2, 64, 2, 16},
                                  {1, 65, 1, 80},
                                  {1, 100, 2, 33},
                                  {1, 150, 1, 64},
                                  {1, 66, 1, 128},
                                  {1, 70, 1, 200},
                                  {1, 65, 1, 256}}) {
    CAPTURE(s.tokens);
    CAPTURE(s.head_size);
    const std::size_t rows = static_cast<std::size_t>(s.samples) * s.tokens, width = s.width();
    const std::vector<T> qkv = random_values<T>(1, rows * 3 * width, 1.5f),
                         d_out = random_values<T>(2, rows * width);
    const Reference wanted(s, qkv, d_out);
    const auto [out, statistics, gradient, workspace] = in_all_orders([&] {
      const Memory<T> in(qkv), out_gradient(d_out);
      std::tuple all{Memory<T>(rows * width), Memory<float>(cuda::attention_statistics(s)),
                     Memory<T>(rows * 3 * width), Memory<float>(cuda::attention_statistics(s))};
      auto& [out, statistics, gradient, workspace] = all;
      cuda::attention<T>(nullptr, s, in.data(), out.data(), statistics.data());
      cuda::attention_backward<T>(nullptr, s, in.data(), out.data(), out_gradient.data(), statistics.data(),
                                  gradient.data(), workspace.data());
      synchronize();
      return all;
    });
    check_near(out, wanted.out, 5e-6);
    check_near(statistics, wanted.statistics, 1e-6, 4);
    check_near(gradient, Reference(s, qkv, d_out, &out).gradient, 1e-5);
  }
}

TEST_CASE("large scores do not overflow, and a score that is NaN spoils only who sees it") {
  const AttentionShape s{1, 70, 1, 8};
  std::vector<float> qkv = random_values<float>(3, 70 * 24, 30);
  const auto run = [&] {
    return in_all_orders([&] {
      const Memory<float> in(qkv);
      std::tuple all{Memory<float>(70 * 8), Memory<float>(70)};
      cuda::attention<float>(nullptr, s, in.data(), std::get<0>(all).data(), std::get<1>(all).data());
      synchronize();
      return all;
    });
  };
  const Reference wanted(s, qkv, std::vector<float>(70 * 8));
  check_near(std::get<0>(run()), wanted.out, 2e-4, 30);  // the scores are about 2,500
  qkv[66 * 24 + 8] = NAN;                                // key 66
  const auto [out, statistics] = run();
  for (int token = 0; token < 70; ++token) CHECK(std::isnan(out[token * 8]) == (token >= 66));
}

}  // namespace dtrun::attention_test
