// Sums whose order no width of a vector changes: of kernels_impl.h, whose rules hold here too.
#pragma once

#include "worker/device/cpu/planned/kernels.h"

namespace dtrun::worker::planned::DTRUN_KERNELS {
namespace {

// Partial sums by index modulo this: a fixed order for every width of a vector.
constexpr std::size_t kSums = 16;

inline float smaller(float a, float b) { return b < a ? b : a; }  // a if one is NaN
inline float larger(float a, float b) { return b > a ? b : a; }   // a if one is NaN

template <typename Term>
inline float sum_of(std::size_t count, const Term& term) {
  float sums[kSums] = {};
  std::size_t i = 0;
  for (; i + kSums <= count; i += kSums)
    for (std::size_t k = 0; k < kSums; ++k) sums[k] += term(i + k);
  for (std::size_t k = 0; i < count; ++i, ++k) sums[k] += term(i);
  for (std::size_t step = kSums / 2; step > 0; step /= 2)
    for (std::size_t k = 0; k < step; ++k) sums[k] += sums[k + step];
  return sums[0];
}

inline float largest_of(std::size_t count, const float* values) {
  float found[kSums];
  for (std::size_t k = 0; k < kSums; ++k) found[k] = values[k < count ? k : 0];
  std::size_t i = kSums;
  for (; i + kSums <= count; i += kSums)
    for (std::size_t k = 0; k < kSums; ++k) found[k] = larger(found[k], values[i + k]);
  for (std::size_t k = 0; i < count; ++i, ++k) found[k] = larger(found[k], values[i]);
  for (std::size_t step = kSums / 2; step > 0; step /= 2)
    for (std::size_t k = 0; k < step; ++k) found[k] = larger(found[k], found[k + step]);
  return found[0];
}

inline void put(bool add, float value, float* to) { *to = add ? *to + value : value; }

}  // namespace
}  // namespace dtrun::worker::planned::DTRUN_KERNELS
