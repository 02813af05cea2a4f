// Weights as small integers, each block of a row with a scale of its own: the schemes of compressed-tensors
// (symmetric integers, halves to even) and of GGUF, to the bit. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::worker {

// int8: a scale for each row; int4: for each 32 columns. q8_0, q4_0: llama.cpp's, of 32 columns with a scale
// in fp16.
enum class Quantization : std::uint8_t { kInt8, kInt4, kQ8_0, kQ4_0 };
inline constexpr std::array<std::string_view, 4> kNamesOfQuantization{"int8", "int4", "q8_0", "q4_0"};

// Columns of a block; a row's last may have fewer.
std::size_t block_of(Quantization how, std::size_t columns);

// Of one block: overwrites `steps` with whole numbers, and returns the scale: a weight becomes steps * scale.
// What is not finite stays so. `weights` and `steps` may be the same memory.
float quantize_block(Quantization how, std::size_t count, const float* weights, float* steps);

struct Quantized {
  std::vector<std::int8_t> steps;  // as the weights
  std::vector<float> scales;       // of each block, row after row
};
// Of rows of so many columns each. REQUIRES: all weights are finite.
Quantized quantize(Quantization how, std::span<const float> weights, std::size_t columns);

// GGUF's blocks [fp16 scale | steps], one after the other. REQUIRES: q8_0 or q4_0; whole blocks.
std::string gguf_blocks(Quantization how, const Quantized& weights);

// compressed-tensors' words of 32 bits: steps without their sign, 32 / bits to a word, the first in the
// lowest bits; each row begins with a word. REQUIRES: int8 or int4.
std::vector<std::uint32_t> packed_words(Quantization how, const Quantized& weights, std::size_t columns);

}  // namespace dtrun::worker
