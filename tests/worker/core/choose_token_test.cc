#include "worker/core/choose_token.h"

#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <vector>

namespace dtrun::choose_token_test {

using namespace dtrun::worker;

namespace {

// How often each token is drawn, of 1000 evenly spread random numbers.
std::map<int, int> drawn(const std::vector<float>& logits, const Sampling& sampling) {
  std::map<int, int> counts;
  for (int i = 0; i < 1000; ++i) ++counts[choose_token(logits, sampling, (i + 0.5) / 1000)];
  return counts;
}

// Logits of the probabilities 0.1, 0.4, 0.2, 0.3.
const std::vector<float> kLogits{std::log(0.1f), std::log(0.4f), std::log(0.2f), std::log(0.3f)};

using Counts = std::map<int, int>;

}  // namespace

TEST_CASE("tokens are drawn as often as they are likely") {
  CHECK(drawn(kLogits, {}) == Counts{{0, 100}, {1, 400}, {2, 200}, {3, 300}});
}

TEST_CASE("temperature sharpens, and 0 leaves the likeliest; of equals the lower") {
  // Squares: 0.01, 0.16, 0.04, 0.09 of 0.3.
  CHECK(drawn(kLogits, {.temperature = 0.5}) == Counts{{0, 33}, {1, 533}, {2, 134}, {3, 300}});
  CHECK(drawn(kLogits, {.temperature = 0}) == Counts{{1, 1000}});
  CHECK(drawn({2, 5, 5, 5}, {.temperature = 0}) == Counts{{1, 1000}});
}

TEST_CASE("top_k keeps so many, top_p the fewest that suffice, and at least one") {
  CHECK(drawn(kLogits, {.top_k = 1}) == Counts{{1, 1000}});
  CHECK(drawn(kLogits, {.top_k = 2}) == Counts{{1, 571}, {3, 429}});
  CHECK(drawn(kLogits, {.top_k = 9}).size() == 4);
  CHECK(drawn(kLogits, {.top_p = 0.5}) == Counts{{1, 571}, {3, 429}});
  CHECK(drawn(kLogits, {.top_p = 0.75}).size() == 3);
  CHECK(drawn(kLogits, {.top_p = 1e-9}) == Counts{{1, 1000}});
  // The first of the two that top_k keeps has more than half of the probability.
  CHECK(drawn(kLogits, {.top_k = 2, .top_p = 0.5}) == Counts{{1, 1000}});
}

TEST_CASE("the ends of the random numbers, and one token alone") {
  CHECK(choose_token(kLogits, {}, 0) == 1);
  CHECK(choose_token(kLogits, {}, std::nextafter(1.0, 0.0)) == 0);
  CHECK(choose_token(std::vector<float>{3}, {}, 0.7) == 0);
}

}  // namespace dtrun::choose_token_test
