#include "worker/quantize/blocks.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace dtrun::worker {
namespace {

constexpr std::size_t kBlock = 32;

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

// The scale of compressed-tensors: the largest weight lies between the last step and the one behind it.
float symmetric(int bits, std::size_t count, const float* weights, float* steps) {
  const float last = static_cast<float>((1 << (bits - 1)) - 1);
  float scale = largest_of(count, weights) / (last + 0.5f);
  if (scale == 0) scale = std::numeric_limits<float>::epsilon();
  for (std::size_t i = 0; i < count; ++i) {
    constexpr float kRounds = 0x1.8p23f;  // adding it leaves a whole number, halves to even
    const float step = (weights[i] / scale + kRounds) - kRounds;
    steps[i] = step > last ? last : step < -last - 1 ? -last - 1 : step;
  }
  return scale;
}

float q8_0(std::size_t count, const float* weights, float* steps) {
  const float scale = largest_of(count, weights) / 127, inverse = inverse_of(scale);
  for (std::size_t i = 0; i < count; ++i) steps[i] = std::round(weights[i] * inverse);
  return float_of(half_of(scale));
}

// The first of the largest weights is the step -8.
float q4_0(std::size_t count, const float* weights, float* steps) {
  float largest = 0;
  for (std::size_t i = 0; i < count; ++i)
    if (std::abs(weights[i]) > std::abs(largest)) largest = weights[i];
  const float scale = largest / -8, inverse = inverse_of(scale);
  for (std::size_t i = 0; i < count; ++i) {
    const float step = std::trunc(weights[i] * inverse + 8.5f) - 8;
    steps[i] = step > 7 ? 7 : step;
  }
  return float_of(signed_half_of(scale));
}

}  // namespace

std::size_t block_of(Quantization how, std::size_t columns) {
  return how == Quantization::kInt8 ? columns : kBlock;
}

float quantize_block(Quantization how, std::size_t count, const float* weights, float* steps) {
  switch (how) {
    case Quantization::kInt8:
      return symmetric(8, count, weights, steps);
    case Quantization::kInt4:
      return symmetric(4, count, weights, steps);
    case Quantization::kQ8_0:
      return q8_0(count, weights, steps);
    case Quantization::kQ4_0:
      break;
  }
  return q4_0(count, weights, steps);
}

Quantized quantize(Quantization how, std::span<const float> weights, std::size_t columns) {
  Quantized result;
  result.steps.reserve(weights.size());
  const std::size_t block = block_of(how, columns);
  std::vector<float> steps(block);
  for (std::size_t row = 0; row < weights.size(); row += columns)
    for (std::size_t first = 0; first < columns; first += block) {
      const std::size_t count = std::min(block, columns - first);
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
    const std::int8_t* const steps = weights.steps.data() + block * kBlock;
    if (how == Quantization::kQ8_0)
      for (std::size_t i = 0; i < kBlock; ++i) add(steps[i]);
    else
      for (std::size_t i = 0; i < kBlock / 2; ++i) add((steps[i] + 8) | (steps[i + kBlock / 2] + 8) << 4);
  }
  return bytes;
}

std::vector<std::uint32_t> packed_words(Quantization how, const Quantized& weights, std::size_t columns) {
  const int bits = how == Quantization::kInt8 ? 8 : 4;
  const std::size_t in_word = 32 / static_cast<std::size_t>(bits);
  std::vector<std::uint32_t> words;
  for (std::size_t row = 0; row < weights.steps.size(); row += columns)
    for (std::size_t first = 0; first < columns; first += in_word) {
      std::uint32_t word = 0;
      for (std::size_t i = 0; i < std::min(in_word, columns - first); ++i)
        word |= static_cast<std::uint32_t>(weights.steps[row + first + i] + (1 << (bits - 1)))
                << (static_cast<int>(i) * bits);
      words.push_back(word);
    }
  return words;
}

}  // namespace dtrun::worker
