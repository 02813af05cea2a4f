// The expected result of a reduction, computed as plainly as possible, and leaves that tell one order of
// additions from another.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "worker/vector/arithmetic.h"

namespace dtrun::worker {

using Vector = std::vector<float>;

// The definition: the sum of leaves [begin, begin + width) of those that exist.
inline Vector recursive_sum(const std::vector<Vector>& leaves, std::size_t begin, std::size_t width) {
  if (width == 1) return leaves[begin];
  Vector sum = recursive_sum(leaves, begin, width / 2);
  if (begin + width / 2 >= leaves.size()) return sum;
  const Vector right = recursive_sum(leaves, begin + width / 2, width / 2);
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = sum[i] + right[i];
  return sum;
}

// Values of very different magnitude, so that another order of additions almost surely gives other bits.
inline std::vector<Vector> random_leaves(std::mt19937& random, int count, std::size_t size) {
  std::uniform_real_distribution<float> mantissa(-1, 1);
  std::uniform_int_distribution<int> exponent(-12, 12);
  std::vector<Vector> leaves(count, Vector(size));
  for (Vector& leaf : leaves) {
    for (float& value : leaf) value = std::ldexp(mantissa(random), exponent(random));
  }
  return leaves;
}

// The result of these additions on `inputs`, vectors of `size` floats.
inline Vector carry_out(const TreeSum& sum, std::span<const float* const> inputs, std::size_t size) {
  Vector total(size);
  const auto cpu = make_cpu_arithmetic();
  cpu->sum(*cpu->make_stream(), sum, inputs, total.data(), size);
  return total;
}

inline bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

}  // namespace dtrun::worker
