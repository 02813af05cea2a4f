// Weights as small integers, each block of a row with a scale of its own in fp16: q8_0 and q4_0 of GGUF, to
// the bit. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "worker/config/choices.h"

namespace dtrun::worker {

// Columns of a block; a row's last may have fewer.
inline constexpr std::size_t kQuantizedBlock = 32;

// Of one block: overwrites `steps` with whole numbers, and returns the scale: a weight becomes steps * scale.
// What is not finite stays so. `weights` and `steps` may be the same memory.
float quantize_block(Quantization how, std::size_t count, const float* weights, float* steps);

struct Quantized {
  std::vector<std::int8_t> steps;  // as the weights
  std::vector<float> scales;       // of each block, row after row
};
// Of rows of so many columns each. REQUIRES: all weights are finite.
Quantized quantize(Quantization how, std::span<const float> weights, std::size_t columns);

// GGUF's blocks [fp16 scale | steps], one after the other. REQUIRES: whole blocks.
std::string gguf_blocks(Quantization how, const Quantized& weights);

}  // namespace dtrun::worker
