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

// Four vectors whose operations take turns: an elementary function is one chain of steps that wait for each
// other, and a processor that meets one chain after the other does not look ahead far enough to be busy.
// Members and no array: GCC keeps an array in memory.
struct Wide {
  Floats a, b, c, d;
};
constexpr std::size_t kWide = 4 * kVector;

#define DTRUN_OPERATOR(op)                                                                             \
  inline Wide operator op(const Wide& x, const Wide& y) {                                              \
    return {x.a op y.a, x.b op y.b, x.c op y.c, x.d op y.d};                                           \
  }                                                                                                    \
  inline Wide operator op(const Wide& x, float y) { return {x.a op y, x.b op y, x.c op y, x.d op y}; } \
  inline Wide operator op(float x, const Wide& y) { return {x op y.a, x op y.b, x op y.c, x op y.d}; }
DTRUN_OPERATOR(+)
DTRUN_OPERATOR(-)
DTRUN_OPERATOR(*)
DTRUN_OPERATOR(/)
#undef DTRUN_OPERATOR

inline Wide load_wide(const float* from) {
  return {load(from), load(from + kVector), load(from + 2 * kVector), load(from + 3 * kVector)};
}
inline void store(const Wide& x, float* to) {
  store(x.a, to), store(x.b, to + kVector), store(x.c, to + 2 * kVector), store(x.d, to + 3 * kVector);
}
inline Wide within(const Wide& x, float low, float high) {
  const auto limited = [=](Floats x) { return smaller(larger(x, Floats{} + low), Floats{} + high); };
  return {limited(x.a), limited(x.b), limited(x.c), limited(x.d)};
}

// 2^n of a float that is kMagic + n, from the integer n in its low bits.
constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
template <typename Bits, typename Value>
inline Value power_of_two_as(Value shifted) {
  constexpr std::uint32_t kMagicBits = 0x4B400000;
  Bits bits;
  __builtin_memcpy(&bits, &shifted, sizeof bits);
  const Bits power = (bits - kMagicBits + 127u) << 23;
  __builtin_memcpy(&shifted, &power, sizeof shifted);
  return shifted;
}
inline float power_of_two(float shifted) { return power_of_two_as<std::uint32_t>(shifted); }
inline Floats power_of_two(Floats shifted) { return power_of_two_as<Integers>(shifted); }
inline Wide power_of_two(const Wide& x) {
  return {power_of_two(x.a), power_of_two(x.b), power_of_two(x.c), power_of_two(x.d)};
}

// e^x to about 1 ulp (Cephes' polynomial after taking out powers of two) for x from -87 to 88; NaN stays NaN.
template <typename Value>
inline Value exponential_within(const Value& x) {
  const Value shifted = x * 1.44269504088896341f + kMagic;
  const Value n = shifted - kMagic;
  const Value r = x - n * 0.693359375f + n * 2.12194440e-4f;
  Value p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  return p * power_of_two(shifted);
}
// As if beyond these numbers e^x did not change.
inline float exponential(float x) { return exponential_within(smaller(larger(x, -87.0f), 88.0f)); }
inline Floats exponential(Floats x) {
  return exponential_within(smaller(larger(x, Floats{} - 87.0f), Floats{} + 88.0f));
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

inline Wide hyperbolic_tangent(const Wide& x) {
  return 1.0f - 2.0f / (exponential_within(2.0f * within(x, -15.0f, 15.0f)) + 1.0f);
}

}  // namespace
}  // namespace dtrun::worker::planned::DTRUN_KERNELS
