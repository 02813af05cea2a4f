#include "worker/quantize/blocks.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

namespace dtrun::worker {
namespace {

// The nearest fp16, of two equally near ones the even one. REQUIRES: not negative.
std::uint16_t half_of(float value) {
  if (!(value < 65520.0f)) return value > 0 ? 0x7C00 : 0x7E00;
  if (value < 0x1p-14f)  // in steps of 2^-24
    return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value + 0.5f) -
                                      std::bit_cast<std::uint32_t>(0.5f));
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t even = bits >> 13 & 1;
  return static_cast<std::uint16_t>((bits + 0xFFF + even - (112u << 23)) >> 13);
}
std::uint16_t signed_half_of(float value) {
  return static_cast<std::uint16_t>(half_of(std::abs(value)) | (std::signbit(value) ? 0x8000 : 0));
}
float float_of(std::uint16_t half) {
  const int exponent = half >> 10 & 31;
  const int fraction = half & 1023;
  const float size = exponent == 31 ? (fraction == 0 ? std::numeric_limits<float>::infinity() : std::nanf(""))
                     : exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                                     : std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
  return half >> 15 ? -size : size;
}

float largest_of(std::size_t count, const float* weights) {
  float largest = 0;
  for (std::size_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(weights[i]));
  return largest;
}

float inverse_of(float scale) { return scale == 0 ? 0 : 1 / scale; }

// std::round and std::floor of values below 2^22, as additions and comparisons, of which compilers make
// vectors.
constexpr float kRounds = 0x1.8p23f;  // adding it leaves a whole number, halves to even
float rounded(float value) {
  const float size = std::abs(value), even = (size + kRounds) - kRounds;
  return std::copysign(size - even == 0.5f ? even + 1 : even, value);
}
float floor_of(float value) {
  const float even = (value + kRounds) - kRounds;
  return even > value ? even - 1 : even;
}

float q8_0(std::size_t count, const float* weights, float* steps) {
  const float scale = largest_of(count, weights) / 127, inverse = inverse_of(scale);
  for (std::size_t i = 0; i < count; ++i) steps[i] = rounded(weights[i] * inverse);
  return float_of(half_of(scale));
}

// The first of the largest weights is the step -8.
float q4_0(std::size_t count, const float* weights, float* steps) {
  float largest = 0;
  for (std::size_t i = 0; i < count; ++i)
    if (std::abs(weights[i]) > std::abs(largest)) largest = weights[i];
  const float scale = largest / -8, inverse = inverse_of(scale);
  for (std::size_t i = 0; i < count; ++i) {
    const float step = floor_of(weights[i] * inverse + 8.5f) - 8;
    steps[i] = step > 7 ? 7 : step;
  }
  return float_of(signed_half_of(scale));
}

}  // namespace

float quantize_block(Quantization how, std::size_t count, const float* weights, float* steps) {
  return how == Quantization::kQ8_0 ? q8_0(count, weights, steps) : q4_0(count, weights, steps);
}

Quantized quantize(Quantization how, std::span<const float> weights, std::size_t columns) {
  Quantized result;
  result.steps.reserve(weights.size());
  std::array<float, kQuantizedBlock> steps;
  for (std::size_t row = 0; row < weights.size(); row += columns)
    for (std::size_t first = 0; first < columns; first += kQuantizedBlock) {
      const std::size_t count = std::min(kQuantizedBlock, columns - first);
      result.scales.push_back(quantize_block(how, count, weights.data() + row + first, steps.data()));
      for (std::size_t i = 0; i < count; ++i) result.steps.push_back(static_cast<std::int8_t>(steps[i]));
    }
  return result;
}

std::string gguf_blocks(Quantization how, const Quantized& weights) {
  std::string bytes;
  const auto add = [&](int byte) { bytes += static_cast<char>(byte); };
  for (std::size_t block = 0; block < weights.scales.size(); ++block) {
    const std::uint16_t scale = signed_half_of(weights.scales[block]);
    add(scale & 255), add(scale >> 8);
    const std::int8_t* const steps = weights.steps.data() + block * kQuantizedBlock;
    if (how == Quantization::kQ8_0)
      for (std::size_t i = 0; i < kQuantizedBlock; ++i) add(steps[i]);
    else
      for (std::size_t i = 0; i < kQuantizedBlock / 2; ++i)
        add((steps[i] + 8) | (steps[i + kQuantizedBlock / 2] + 8) << 4);
  }
  return bytes;
}

}  // namespace dtrun::worker
