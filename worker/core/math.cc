#include "worker/core/math.h"

#include <bit>
#include <cmath>
#include <limits>
#include <numbers>

namespace dtrun::worker {

// x = m * 2^e with m in [sqrt(1/2), sqrt(2)), and the series of 2 atanh((m - 1) / (m + 1)).
double natural_logarithm(double x) {
  const auto bits = std::bit_cast<std::uint64_t>(x);
  int exponent = static_cast<int>(bits >> 52) - 1023;
  double mantissa = std::bit_cast<double>((bits & 0xFFFFFFFFFFFFFull) | 0x3FF0000000000000ull);
  if (mantissa > std::numbers::sqrt2) mantissa /= 2, ++exponent;
  const double s = (mantissa - 1) / (mantissa + 1), square = s * s;
  double sum = 0;
  for (int n = 21; n >= 1; n -= 2) sum = sum * square + 1.0 / n;
  return 2 * s * sum + exponent * std::numbers::ln2;
}

// e^x = 2^n e^r with |r| <= ln(2) / 2, and e^r by its Taylor series. ln 2 in two parts: n times the first is
// exact.
double exponential(double x) {
  constexpr double kLn2High = 0x1.62e42fee00000p-1, kLn2Low = 0x1.a39ef35793c76p-33;
  if (!(x < 710)) return std::isnan(x) ? x : std::numeric_limits<double>::infinity();
  if (x < -746) return 0;
  const double n = std::nearbyint(x / std::numbers::ln2);
  const double r = x - n * kLn2High - n * kLn2Low;
  double sum = 1;
  for (int k = 18; k >= 1; --k) sum = 1 + sum * r / k;
  return std::ldexp(sum, static_cast<int>(n));
}

double power(double base, double exponent) {
  if (exponent == 0 || base == 1) return 1;
  if (exponent == 1 || base == 0) return base;
  return exponential(exponent * natural_logarithm(base));
}

double power(double base, std::int64_t exponent) {
  double result = 1;
  for (; exponent > 0; exponent /= 2, base *= base)
    if (exponent % 2 == 1) result *= base;
  return result;
}

// By the Taylor series around the nearest half turn's multiple.
double cosine_of_turns(double turns) {
  turns = std::fabs(turns - std::trunc(turns));
  if (turns > 0.5) turns = 1 - turns;
  const bool beyond_quarter = turns > 0.25;
  if (beyond_quarter) turns = 0.5 - turns;
  const double x = 2 * std::numbers::pi * turns, square = x * x;
  double sum = 1;
  for (int n = 20; n >= 2; n -= 2) sum = 1 - sum * square / (n * (n - 1));
  return beyond_quarter ? -sum : sum;
}

}  // namespace dtrun::worker
