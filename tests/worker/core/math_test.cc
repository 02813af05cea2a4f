// Our functions of double against the C library's, to some last bits.
#include "worker/core/math.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <numbers>

namespace dtrun::math_test {

using namespace dtrun::worker;

TEST_CASE("logarithm, exponential and powers are the C library's to 1e-14") {
  for (double x = 1e-300; x < 1e300; x *= 7.3) {
    CAPTURE(x);
    CHECK(natural_logarithm(x) == doctest::Approx(std::log(x)).epsilon(1e-15));
    CHECK(power(x, 0.5) == doctest::Approx(std::sqrt(x)).epsilon(1e-13));
  }
  for (double x = -740; x < 709; x += 0.37) {
    CAPTURE(x);
    if (x > -708) CHECK(std::abs(exponential(x) / std::exp(x) - 1) < 1e-15 * 4);
    CHECK(exponential(x) >= 0);
  }
  CHECK(exponential(0) == 1);
  CHECK(exponential(-800) == 0);
  CHECK(exponential(710) == std::numeric_limits<double>::infinity());
  CHECK(std::isnan(exponential(std::numeric_limits<double>::quiet_NaN())));
  CHECK(power(0.0, 2.5) == 0);
  CHECK(power(0.0, 0.0) == 1);
  CHECK(power(0.37, 1.0) == 0.37);
}

TEST_CASE("whole powers by squaring") {
  CHECK(power(0.9, std::int64_t{0}) == 1);
  CHECK(power(0.9, std::int64_t{1}) == 0.9);
  for (const double beta : {0.5, 0.9, 0.95, 0.999})
    for (std::int64_t n = 1; n < 100000; n = n * 3 + 1) {
      CAPTURE(beta);
      CAPTURE(n);
      CHECK(std::abs(power(beta, n) - std::pow(beta, static_cast<double>(n))) < 1e-13);
    }
}

TEST_CASE("a cosine of any number of turns, each quarter exact") {
  for (double turns = -3; turns < 3; turns += 0.01) {
    CAPTURE(turns);
    CHECK(std::abs(cosine_of_turns(turns) - std::cos(2 * std::numbers::pi * turns)) < 1e-14);
  }
  CHECK(cosine_of_turns(0) == 1);
  CHECK(cosine_of_turns(0.5) == -1);
  CHECK(cosine_of_turns(7) == 1);
  CHECK(std::abs(cosine_of_turns(0.25)) < 1e-16);
}

}  // namespace dtrun::math_test
