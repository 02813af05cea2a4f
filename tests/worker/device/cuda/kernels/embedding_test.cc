// Embeddings, how tokens are sorted for their gradient, and the gradient against sums in fp64.
#include "worker/device/cuda/kernels/embedding.h"

#include "tests/worker/device/cuda/kernels/run.h"
#include "worker/device/cuda/kernels/token_runs.h"

namespace dtrun::embedding_test {

using namespace dtrun::worker;
using namespace dtrun::worker::cuda::testing;

namespace {

struct Sorted {
  std::vector<std::int32_t> order, begins, ids;
  std::int32_t cut = 0;
};

Sorted sorted(cuda::TokenSorter& sorter, const std::vector<std::int32_t>& tokens) {
  Sorted s{std::vector<std::int32_t>(tokens.size()), std::vector<std::int32_t>(tokens.size() + 1),
           std::vector<std::int32_t>(tokens.size())};
  const auto pieces = sorter.sort(tokens, s.order.data(), s.begins.data(), s.ids.data());
  s.begins.resize(pieces.all + 1), s.ids.resize(pieces.all);
  s.cut = pieces.cut;
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

// So many of token 0, 1, …, in an order that the seed decides.
std::vector<std::int32_t> shuffled(const std::vector<int>& counts, unsigned seed) {
  std::vector<std::int32_t> tokens;
  for (std::size_t token = 0; token < counts.size(); ++token)
    tokens.insert(tokens.end(), counts[token], static_cast<std::int32_t>(token));
  std::shuffle(tokens.begin(), tokens.end(), std::mt19937(seed));
  return tokens;
}

// The gradient of `old`'s rows, [classes][width].
template <typename T>
Memory<float> gradient_of(const std::vector<std::int32_t>& tokens, const std::vector<T>& d,
                          const std::vector<float>& old, std::size_t width, bool add) {
  cuda::TokenSorter sorter(old.size() / width);
  const Sorted s = sorted(sorter, tokens);
  auto [gradient] = in_all_orders([&] {
    const Memory<T> out_gradient(d);
    std::tuple all{Memory<float>(old, 1)};
    const Memory<std::int32_t> order(s.order), begins(s.begins), ids(s.ids);
    const Memory<std::int32_t> counts(
        std::vector<std::int32_t>{static_cast<std::int32_t>(s.ids.size()), s.cut});
    Memory<float> workspace(cuda::embedding_backward_workspace(tokens.size(), width));
    // More blocks than pieces, as for microbatches of other tokens.
    const cuda::TokenPieces pieces{order.data(),  begins.data(),    ids.data(),
                                   counts.data(), s.ids.size() + 2, cuda::most_cut_pieces(tokens.size())};
    cuda::embedding_backward<T>(nullptr, width, pieces, out_gradient.data(), add, std::get<0>(all).data(),
                                workspace.data());
    synchronize();
    CHECK(workspace.intact());
    return all;
  });
  return gradient;
}

// As the kernels add: four warps by turns, then their sums, for each 512 rows; then those.
float sum_in_order(const std::vector<float>& values) {
  float total = 0;
  for (std::size_t begin = 0; begin < values.size(); begin += 512) {
    const std::size_t size = std::min<std::size_t>(values.size() - begin, 512);
    float warps[4] = {};
    for (std::size_t i = 0; i < size; ++i) warps[i % 4] += values[begin + i];
    float piece = warps[0];
    for (std::size_t w = 1; w < std::min<std::size_t>(size, 4); ++w) piece += warps[w];
    total = begin == 0 ? piece : total + piece;
  }
  return total;
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

TEST_CASE("tokens with more than 512 rows come first, in pieces") {
  cuda::TokenSorter sorter(5);
  const Sorted s = sorted(sorter, shuffled({3, 1025, 512, 0, 513}, 1));
  CHECK(s.ids == std::vector<std::int32_t>{1, 1, 1, 4, 4, 0, 2});
  CHECK(s.begins == std::vector<std::int32_t>{0, 512, 1024, 1025, 1537, 1538, 1541, 2053});
  CHECK(s.cut == 5);
  CHECK(s.cut <= static_cast<std::int32_t>(cuda::most_cut_pieces(s.order.size())));
  // The worst case.
  const Sorted worst = sorted(sorter, shuffled({513, 513, 513, 513, 513}, 1));
  CHECK(worst.cut == 10);
  CHECK(worst.cut == static_cast<std::int32_t>(cuda::most_cut_pieces(worst.order.size())));
  CHECK(sorted(sorter, shuffled({512}, 1)).cut == 0);
}

TEST_CASE("the order of random tokens is that of a stable sort") {
  cuda::TokenSorter sorter(50);
  const std::vector<std::int32_t> tokens = some_tokens(900, 50);
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
  for (const std::size_t rows : {1, 7, 300, 3000})
    for (const std::size_t width : {1, 3, 64, 100, 264})
      for (const bool add : {false, true}) {
        CAPTURE(rows);
        CAPTURE(width);
        CAPTURE(add);
        const std::vector<std::int32_t> tokens = some_tokens(rows, classes);
        const std::vector<T> d = random_values<T>(3, rows * width);
        const std::vector<float> old = random_values<float>(4, classes * width);
        std::vector<double> wanted(old.begin(), old.end());
        if (!add)
          for (const std::int32_t token : tokens) std::fill_n(wanted.begin() + token * width, width, 0.0);
        for (std::size_t r = 0; r < rows; ++r)
          for (std::size_t i = 0; i < width; ++i) wanted[tokens[r] * width + i] += value_of(d[r * width + i]);
        check_near(gradient_of(tokens, d, old, width, add), wanted, 2e-6, 10 + std::sqrt(rows));
      }
}

// All are added in fp32: another order gives other bits.
TEST_CASE_TEMPLATE("the number of a token's rows decides in which order they are added, nothing else", T,
                   DTRUN_ACTIVATIONS) {
  const std::size_t width = 40;
  for (const std::vector<int>& counts :
       {std::vector<int>{1, 3, 4, 5, 511, 512, 513, 1024, 1300}, std::vector<int>{1300, 512, 2, 1}}) {
    const std::vector<std::int32_t> tokens = shuffled(counts, 2);
    const std::vector<T> d = random_values<T>(5, tokens.size() * width);
    const std::vector<float> old = random_values<float>(6, counts.size() * width);
    for (const bool add : {false, true}) {
      const Memory<float> gradient = gradient_of(tokens, d, old, width, add);
      for (std::size_t token = 0; token < counts.size(); ++token) {
        std::size_t wrong = 0;
        for (std::size_t column = 0; column < width; ++column) {
          std::vector<float> values;
          for (std::size_t row = 0; row < tokens.size(); ++row)
            if (tokens[row] == static_cast<std::int32_t>(token))
              values.push_back(value_of(d[row * width + column]));
          const std::size_t at = token * width + column;
          wrong += gradient[at] != (add ? old[at] : 0.0f) + sum_in_order(values);
        }
        CAPTURE(counts[token]);
        CAPTURE(add);
        CHECK(wrong == 0);
      }
    }
  }
}

}  // namespace dtrun::embedding_test
