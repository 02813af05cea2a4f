// Sums whose order no width of a vector changes: of kernels_impl.h, whose rules hold here too.
#pragma once

#include "worker/device/cpu/planned/elementary_functions.h"

namespace dtrun::worker::planned::DTRUN_KERNELS {
namespace {

// Partial sums by index modulo this: a fixed order for every width of a vector.
constexpr std::size_t kSums = 16;

// Of 2 * kStep values one, in steps whose number the compiler knows.
template <std::size_t kStep, typename Combine>
inline float folded(float* values, const Combine& combine) {
  for (std::size_t k = 0; k < kStep; ++k) values[k] = combine(values[k], values[k + kStep]);
  if constexpr (kStep > 1) return folded<kStep / 2>(values, combine);
  return values[0];
}

template <typename Term>
inline float sum_of(std::size_t count, const Term& term) {
  float sums[kSums] = {};
  std::size_t i = 0;
  for (; i + kSums <= count; i += kSums)
    for (std::size_t k = 0; k < kSums; ++k) sums[k] += term(i + k);
  for (std::size_t k = 0; i < count; ++i, ++k) sums[k] += term(i);
  return folded<kSums / 2>(sums, [](float a, float b) { return a + b; });
}

inline float largest_of(std::size_t count, const float* values) {
  float found[kSums];
  for (std::size_t k = 0; k < kSums; ++k) found[k] = values[k < count ? k : 0];
  std::size_t i = kSums;
  for (std::size_t k = 0; k < kSums; k += kVector) {
    Floats some = load(found + k);
    for (i = kSums; i + kSums <= count; i += kSums) some = larger(some, load(values + i + k));
    store(some, found + k);
  }
  for (std::size_t k = 0; i < count; ++i, ++k) found[k] = larger(found[k], values[i]);
  return folded<kSums / 2>(found, larger<float>);
}

inline void put(bool add, float value, float* to) { *to = add ? *to + value : value; }

}  // namespace
}  // namespace dtrun::worker::planned::DTRUN_KERNELS
