// Vectors of an instruction set's size and elementary functions, whose bits are the same with every set: for
// a file that is compiled once per set, which defines DTRUN_KERNELS (a namespace) and DTRUN_VECTOR (floats in
// a vector register). Includes nothing that has inline functions with external linkage.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dtrun::worker::planned::DTRUN_KERNELS {
namespace {

// Vectors, since of a choice between values the compiler's own vectors make two ways that both are gone.
constexpr std::size_t kVector = DTRUN_VECTOR;
using Floats = float __attribute__((vector_size(4 * DTRUN_VECTOR)));
using Integers = std::uint32_t __attribute__((vector_size(4 * DTRUN_VECTOR)));

// `count` of kVector; zeros follow them.
inline Floats load(const float* from, std::size_t count = kVector) {
  Floats values = {};
  __builtin_memcpy(&values, from, count * sizeof(float));
  return values;
}
inline void store(Floats values, float* to, std::size_t count = kVector) {
  __builtin_memcpy(to, &values, count * sizeof(float));
}
// Calls each(i, how many from i on) for all values.
template <typename Each>
inline void each_vector(std::size_t count, const Each& each) {
  std::size_t i = 0;
  for (; i + kVector <= count; i += kVector) each(i, kVector);
  if (i < count) each(i, count - i);
}

// Of floats or Floats; a if one is NaN.
template <typename Value>
inline Value smaller(Value a, Value b) {
  return b < a ? b : a;
}
template <typename Value>
inline Value larger(Value a, Value b) {
  return b > a ? b : a;
}

// e^x to about 1 ulp (Cephes' polynomial after taking out powers of two) for x from -87 to 88; NaN stays NaN.
// Bits: of a Value.
template <typename Value, typename Bits>
inline Value exponential_within(Value x) {
  constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer, in the low bits
  constexpr std::uint32_t kMagicBits = 0x4B400000;
  const Value shifted = x * 1.44269504088896341f + kMagic;
  const Value n = shifted - kMagic;
  const Value r = x - n * 0.693359375f + n * 2.12194440e-4f;
  Value p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  Bits bits;
  __builtin_memcpy(&bits, &shifted, sizeof bits);
  const Bits power = (bits - kMagicBits + 127u) << 23;
  Value scale;
  __builtin_memcpy(&scale, &power, sizeof scale);
  return p * scale;
}
// As if beyond these numbers e^x did not change.
inline float exponential(float x) {
  return exponential_within<float, std::uint32_t>(smaller(larger(x, -87.0f), 88.0f));
}
inline Floats exponential(Floats x) {
  return exponential_within<Floats, Integers>(smaller(larger(x, Floats{} - 87.0f), Floats{} + 88.0f));
}

// log x of a normal x > 0 to about 1 ulp (Cephes: x = m * 2^n with m in [sqrt(1/2), sqrt(2)), and a
// polynomial of m - 1). NaN, also of infinity, stays NaN. The C library's last bit may depend on the
// processor.
inline float logarithm(float x) {
  std::uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  auto n = static_cast<float>(static_cast<std::int32_t>(bits >> 23) - 126);
  bits = (bits & 0x007FFFFF) | 0x3F000000;  // of x / 2^n in [1/2, 1)
  float m;
  __builtin_memcpy(&m, &bits, sizeof m);
  if (m < 0.70710678118654752f) m += m, n -= 1.0f;
  const float r = m - 1.0f, square = r * r;
  float p = 7.0376836292e-2f;
  p = p * r - 1.1514610310e-1f;
  p = p * r + 1.1676998740e-1f;
  p = p * r - 1.2420140846e-1f;
  p = p * r + 1.4249322787e-1f;
  p = p * r - 1.6668057665e-1f;
  p = p * r + 2.0000714765e-1f;
  p = p * r - 2.4999993993e-1f;
  p = p * r + 3.3333331174e-1f;
  const float rest = p * r * square - n * 2.12194440e-4f - 0.5f * square;
  return n * 0.693359375f + (r + rest) + (x - x);
}

inline Floats hyperbolic_tangent(Floats x) {
  x = smaller(larger(x, Floats{} - 15.0f), Floats{} + 15.0f);
  return 1.0f - 2.0f / (exponential_within<Floats, Integers>(2.0f * x) + 1.0f);
}

}  // namespace
}  // namespace dtrun::worker::planned::DTRUN_KERNELS
