// Matmuls of matrices of fp32, compiled once per instruction set (kernels_impl.h). All sets give the same
// bits, in every layout and however a matmul is cut into tiles, because the sum of each element has one
// order:
//
//   k is cut into ceil(k / kBlock) blocks of equal length, the first ones longer by one where they do not
//   divide it. The sum of a block is one chain of fused multiply-adds from 0, in the order of k; times alpha
//   it is added to c, or to the bias, in the order of the blocks.
//
// Copies::avx512_bf16 rounds both matrices to bf16 on the way. The same holds for its bits, with pairs of
// neighbours along k in the place of k's values: VDPBF16PS adds the second product of a pair, then the first,
// each rounded once, and takes what is less than a normal number as zero (Intel's manual, volume 2; so do
// AMD's processors).
#pragma once

#include <cstddef>
#include <cstdint>

#include "worker/base/instruction_sets.h"
#include "worker/device/cpu/matmul/matmul.h"

namespace dtrun::worker::matmul {

inline constexpr std::int64_t kBlock = 512;

struct Kernels {
  const char* instruction_set = nullptr;
  std::size_t scratch = 0;  // floats that multiply() works in, 64-byte aligned
  void (*multiply)(const Matmul<float>& matmul,
                   float* scratch) = nullptr;  // null: it has no fused multiply-add, as the others
  void (*multiply_gathered)(const GatheredMatmul& matmul, float* scratch) = nullptr;
  void (*spread)(const Spread& spread, const float* in, float* out) = nullptr;
  // Planes next to each other become pixels: value i of plane p is out[places[i] + p].
  void (*transpose_planes)(std::int64_t planes, std::int64_t pixels, const float* in,
                           const std::int32_t* places, float* out) = nullptr;
};

// All sets for fp32 that this processor runs, the fastest first.
InstructionSets<Kernels> available_kernels();

// Those that round to bf16; null: this processor has no AVX512_BF16, or DTRUN_CPU leaves it out.
const Kernels* bf16_kernels();

}  // namespace dtrun::worker::matmul

namespace dtrun::worker {

template <>
const matmul::Kernels Copies<matmul::Kernels>::baseline;
template <>
const matmul::Kernels Copies<matmul::Kernels>::avx2;
template <>
const matmul::Kernels Copies<matmul::Kernels>::avx512;
template <>
const matmul::Kernels Copies<matmul::Kernels>::avx512_bf16;

}  // namespace dtrun::worker
