// Initial parameter values. Each parameter has a random stream of its own, so its values depend on the seed
// and its index alone. Functions of the C library that machines may round differently are not used.
#include <bit>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "worker/core/philox.h"
#include "worker/model/program.h"

namespace dtrun::worker {
namespace {

// REQUIRES: x > 0 and normal. Exact to about 1e-15: x = m * 2^e with m in [sqrt(1/2), sqrt(2)), and the
// series of 2 atanh((m - 1) / (m + 1)).
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

// cos(2 pi turns), 0 <= turns < 1, by its Taylor series around the nearest half turn's multiple.
double cosine_of_turns(double turns) {
  if (turns > 0.5) turns = 1 - turns;
  const bool beyond_quarter = turns > 0.25;
  if (beyond_quarter) turns = 0.5 - turns;
  const double x = 2 * std::numbers::pi * turns, square = x * x;
  double sum = 1;
  for (int n = 20; n >= 2; n -= 2) sum = 1 - sum * square / (n * (n - 1));
  return beyond_quarter ? -sum : sum;
}

struct Fill {
  const RandomStream& stream;
  std::span<float> values;

  void operator()(const UniformInit& init) const {
    // 2u - 1 is exact in fp32, so each value is rounded once.
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = (2.0f * stream.uniform(i) - 1.0f) * init.bound;
  }
  // Box-Muller. The length has 32 random bits, so that it reaches beyond 6 deviations.
  void operator()(const NormalInit& init) const {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double u = (static_cast<double>(stream.bits(2 * i)) + 0.5) * 0x1p-32;
      const double length = std::sqrt(-2 * natural_logarithm(u));
      values[i] = static_cast<float>(init.deviation * length * cosine_of_turns(stream.uniform(2 * i + 1)));
    }
  }
  void operator()(const ConstantInit& init) const {
    for (float& value : values) value = init.value;
  }
};

}  // namespace

void initialize_parameters(const Program& program, std::uint64_t seed, std::span<float> flat) {
  for (std::size_t i = 0; i < program.parameters.size(); ++i) {
    const Parameter& parameter = program.parameters[i];
    const RandomStream stream(seed, RandomUse::kInit, static_cast<std::uint32_t>(i), 0);
    std::visit(Fill{stream, flat.subspan(parameter.offset, parameter.size)}, parameter.init);
  }
}

}  // namespace dtrun::worker
