// The matmuls of fp32, compiled once per instruction set (kernels_impl.h). All sets give the same bits, in
// every layout and however a matmul is cut into tiles, because the sum of each element has one order:
//
//   k is cut into ceil(k / kBlock) blocks of equal length, the first ones longer by one where they do not
//   divide it. The sum of a block is one chain of fused multiply-adds from 0, in the order of k; times alpha
//   it is added to c, or to the bias, in the order of the blocks.
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

// All sets that this processor runs, the fastest first.
InstructionSets<Kernels> available_kernels();

}  // namespace dtrun::worker::matmul

namespace dtrun::worker {

template <>
const matmul::Kernels Copies<matmul::Kernels>::baseline;
template <>
const matmul::Kernels Copies<matmul::Kernels>::avx2;
template <>
const matmul::Kernels Copies<matmul::Kernels>::avx512;

}  // namespace dtrun::worker
