// Weights as small integers: hand-made blocks of each type, what any block keeps to, and which matrices have
// them. tests/torch compares whole files with those of other programs.
#include "worker/quantize/blocks.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "tests/worker/model/programs.h"
#include "worker/quantize/matrices.h"

namespace dtrun::worker::blocks_test {
namespace {

constexpr Quantization kAll[] = {Quantization::kQ8_0, Quantization::kQ4_0};

std::string hex(const std::string& bytes) {
  std::string text;
  for (const char byte : bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    text += kDigits[static_cast<unsigned char>(byte) >> 4];
    text += kDigits[static_cast<unsigned char>(byte) & 15];
  }
  return text;
}

}  // namespace

TEST_CASE("a block of whole numbers is itself in q8_0 and q4_0, with the scale in fp16 before it") {
  std::vector<float> weights(32);
  weights[0] = -127, weights[1] = 126.5f, weights[2] = 2.5f, weights[31] = 1;
  const Quantized eight = quantize(Quantization::kQ8_0, weights, 32);
  CHECK(eight.scales == std::vector{1.0f});
  CHECK(hex(gguf_blocks(Quantization::kQ8_0, eight)).starts_with("003c817f0300"));  // halves away from 0
  CHECK(hex(gguf_blocks(Quantization::kQ8_0, eight)).ends_with("0001"));

  // The largest is the step -8, so the scale has the other sign.
  weights.assign(32, 0);
  weights[0] = 4, weights[1] = -3.5f, weights[16] = -0.5f;
  const Quantized four = quantize(Quantization::kQ4_0, weights, 32);
  CHECK(four.scales == std::vector{-0.5f});
  CHECK(hex(gguf_blocks(Quantization::kQ4_0, four)).starts_with("00b8908f88"));
}

TEST_CASE("no weight is further from its step than half a step; zeros stay zeros") {
  for (const Quantization how : kAll) {
    CAPTURE(static_cast<int>(how));
    for (const std::size_t columns : {32, 33, 50, 64}) {
      std::vector<float> weights = random_values(columns, 6 * columns, 0.02f);
      std::fill_n(weights.begin(), columns, 0.0f);
      const Quantized q = quantize(how, weights, columns);
      const std::size_t blocks = (columns + kQuantizedBlock - 1) / kQuantizedBlock;
      REQUIRE(q.scales.size() == 6 * blocks);
      for (std::size_t i = 0; i < weights.size(); ++i) {
        const float scale = q.scales[i / columns * blocks + i % columns / kQuantizedBlock];
        // A scale in fp16 is off by 2^-11 at most; q4_0's largest positive step is 7 of 8.
        const float allowed = std::abs(scale) * (how == Quantization::kQ4_0 ? 1.01f : 0.57f);
        CHECK(std::abs(static_cast<float>(q.steps[i]) * scale - weights[i]) <= allowed);
        if (i < columns) CHECK(q.steps[i] == 0);
      }
    }
  }
}

TEST_CASE("what is not finite stays so") {
  for (const Quantization how : kAll) {
    std::vector<float> steps(32, 1.0f);
    steps[3] = std::nanf("");
    const float scale = quantize_block(how, 32, steps.data(), steps.data());
    CHECK(std::isnan(steps[3] * scale));
  }
}

TEST_CASE("matrices of any layout are rounded along their inputs, and all else is left alone") {
  const Program gpt2 = gpt2_program(tiny_gpt2(), tiny_gpt2().n_positions, 64);
  const std::vector<float> flat = random_values(5, gpt2.size, 0.1f);
  std::vector<float> rounded(gpt2.size);
  for (const Quantization how : kAll) {
    round_matrices(gpt2, how, flat.data(), rounded.data());
    for (const Parameter& parameter : gpt2.parameters) {
      CAPTURE(parameter.name);
      const bool matrix = parameter.name.find("c_") != std::string::npos && parameter.shape.size() == 2;
      const bool same =
          std::equal(flat.begin() + static_cast<std::ptrdiff_t>(parameter.offset),
                     flat.begin() + static_cast<std::ptrdiff_t>(parameter.offset + parameter.size),
                     rounded.begin() + static_cast<std::ptrdiff_t>(parameter.offset));
      CHECK(same == !(matrix || parameter.name == "wte.weight"));
    }
  }
  // A column of an [in, out] matrix is an output with a scale of its own: no other output's largest counts.
  const auto matrices = quantized_matrices(gpt2);
  const QuantizedMatrix& first = matrices[0];
  REQUIRE(first.in_first);
  std::vector<float> large = flat;
  large[gpt2.parameters[first.parameter].offset] = 100;  // of the first output
  round_matrices(gpt2, Quantization::kQ8_0, flat.data(), rounded.data());
  std::vector<float> other(gpt2.size);
  round_matrices(gpt2, Quantization::kQ8_0, large.data(), other.data());
  for (std::size_t i = 1; i < first.rows; ++i)
    CHECK(rounded[gpt2.parameters[first.parameter].offset + i] ==
          other[gpt2.parameters[first.parameter].offset + i]);
}

}  // namespace dtrun::worker::blocks_test
