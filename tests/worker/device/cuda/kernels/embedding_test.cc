// Embeddings, how tokens are sorted for their gradient, and the gradient against sums in fp64.
#include "worker/device/cuda/kernels/embedding.h"

#include "tests/worker/device/cuda/kernels/run.h"
#include "worker/device/cuda/kernels/token_runs.h"

using namespace dtrun::worker;
using namespace dtrun::worker::cuda::testing;

namespace {

struct Sorted {
  std::vector<std::int32_t> order, begins, ids;
};

Sorted sorted(cuda::TokenSorter& sorter, const std::vector<std::int32_t>& tokens) {
  Sorted s{std::vector<std::int32_t>(tokens.size()), std::vector<std::int32_t>(tokens.size() + 1),
           std::vector<std::int32_t>(tokens.size())};
  const std::size_t count = sorter.sort(tokens, s.order.data(), s.begins.data(), s.ids.data());
  s.begins.resize(count + 1), s.ids.resize(count);
  return s;
}

// Half of them one token, the rest anything.
std::vector<std::int32_t> some_tokens(std::size_t count, int classes) {
  std::mt19937 random(1);
  std::vector<std::int32_t> tokens(count);
  for (std::int32_t& token : tokens)
    token = static_cast<std::int32_t>(random() % 2 == 0 ? classes / 2 : random() % classes);
  return tokens;
}

}  // namespace

TEST_CASE("tokens are sorted, equal ones by row") {
  cuda::TokenSorter sorter(10);
  const Sorted s = sorted(sorter, {7, 2, 7, 0, 2, 7});
  CHECK(s.ids == std::vector<std::int32_t>{0, 2, 7});
  CHECK(s.begins == std::vector<std::int32_t>{0, 1, 3, 6});
  CHECK(s.order == std::vector<std::int32_t>{3, 1, 4, 0, 2, 5});
  const Sorted none = sorted(sorter, {});
  CHECK(none.ids.empty());
  CHECK(none.begins == std::vector<std::int32_t>{0});
  // Nothing of the last microbatch is left; the largest token counts, too.
  const Sorted one = sorted(sorter, {9});
  CHECK(one.ids == std::vector<std::int32_t>{9});
  CHECK(one.order == std::vector<std::int32_t>{0});
}

TEST_CASE("the order of random tokens is that of a stable sort") {
  cuda::TokenSorter sorter(50);
  const std::vector<std::int32_t> tokens = some_tokens(1000, 50);
  const Sorted s = sorted(sorter, tokens);
  std::vector<std::int32_t> wanted(tokens.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] = static_cast<std::int32_t>(i);
  std::stable_sort(wanted.begin(), wanted.end(), [&](int a, int b) { return tokens[a] < tokens[b]; });
  CHECK(s.order == wanted);
  for (std::size_t k = 0; k < s.ids.size(); ++k)
    for (std::int32_t i = s.begins[k]; i < s.begins[k + 1]; ++i) CHECK(tokens[s.order[i]] == s.ids[k]);
}

TEST_CASE_TEMPLATE("a token becomes its row, with its position's added or alone", T, DTRUN_ACTIVATIONS) {
  const int classes = 20;
  for (const std::size_t width : {1, 3, 64, 100, 264}) {
    const std::size_t length = 5, rows = 3 * length;
    CAPTURE(width);
    const std::vector<T> weight = random_values<T>(1, classes * width),
                         positions = random_values<T>(2, length * width);
    const std::vector<std::int32_t> tokens = some_tokens(rows, classes);
    for (const bool with : {false, true}) {
      CAPTURE(with);
      const auto [out] = in_all_orders([&] {
        const Memory<T> w(weight), p(positions);
        const Memory<std::int32_t> t(tokens);
        std::tuple all{Memory<T>(rows * width)};
        cuda::embedding<T>(nullptr, rows, width, t.data(), w.data(), with ? p.data() : nullptr, length,
                           std::get<0>(all).data());
        synchronize();
        return all;
      });
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < rows * width; ++i) {
        const float value = value_of(weight[tokens[i / width] * width + i % width]);
        const float position = with ? value_of(positions[i % (length * width)]) : 0.0f;
        wrong += out[i] != value_of(T(value + position));
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE_TEMPLATE("a token's gradient is the sum of its rows; what no token has stays", T,
                   DTRUN_ACTIVATIONS) {
  const int classes = 40;
  cuda::TokenSorter sorter(classes);
  for (const std::size_t rows : {1, 7, 300})
    for (const std::size_t width : {1, 3, 64, 100, 264})
      for (const bool add : {false, true}) {
        CAPTURE(rows);
        CAPTURE(width);
        CAPTURE(add);
        const std::vector<std::int32_t> tokens = some_tokens(rows, classes);
        const Sorted s = sorted(sorter, tokens);
        const std::vector<T> d = random_values<T>(3, rows * width);
        const std::vector<float> old = random_values<float>(4, classes * width);
        std::vector<double> wanted(old.begin(), old.end());
        if (!add)
          for (const std::int32_t token : tokens) std::fill_n(wanted.begin() + token * width, width, 0.0);
        for (std::size_t r = 0; r < rows; ++r)
          for (std::size_t i = 0; i < width; ++i) wanted[tokens[r] * width + i] += value_of(d[r * width + i]);
        const auto [gradient] = in_all_orders([&] {
          const Memory<T> out_gradient(d);
          std::tuple all{Memory<float>(old, 1)};
          const Memory<std::int32_t> order(s.order), begins(s.begins), ids(s.ids);
          const Memory<std::int32_t> count(std::vector<std::int32_t>{static_cast<std::int32_t>(ids.size())});
          // More blocks than runs, as for microbatches of other tokens.
          const cuda::TokenRuns runs{order.data(), begins.data(), ids.data(), count.data(), ids.size() + 2};
          cuda::embedding_backward<T>(nullptr, width, runs, out_gradient.data(), add,
                                      std::get<0>(all).data());
          synchronize();
          return all;
        });
        check_near(gradient, wanted, 2e-6, 10);
      }
}
