// The CPU's loops over whole vectors. Compiled once per instruction set (loops_impl.h), picked when the
// program starts. Nothing is contracted, and every sum has an order that only the length decides: all sets
// give the same bits.
#pragma once

#include <cstddef>

#include "worker/base/instruction_sets.h"
#include "worker/vector/update.h"

namespace dtrun::worker::vector {

inline constexpr std::size_t kSquareSums = 32;  // enough that their additions do not wait for each other

// Each loop works on `count` floats. The vectors must not overlap unless the comment allows it.
struct Loops {
  const char* instruction_set;

  // out = left + right; `out` may be `left`.
  void (*add)(const float* left, const float* right, float* out, std::size_t count);
  // `out` may be `values`.
  void (*scale)(const float* values, float factor, float* out, std::size_t count);
  void (*divide)(const float* values, float divisor, float* out, std::size_t count);
  // sums[i % kSquareSums] += the square of values[i], in fp64.
  void (*add_squares)(const float* values, std::size_t count, double* sums);

  // The optimizers of update.h.
  void (*sgd)(const SgdRule& rule, const float* gradient, float* parameters, std::size_t count);
  void (*sgd_momentum)(const SgdRule& rule, const float* gradient, float* parameters, float* buffer,
                       std::size_t count);
  // keep: the factor of weight decay that a parameter is multiplied by.
  void (*adamw)(const AdamWRule& rule, float keep, const float* gradient, float* parameters, float* mean,
                float* mean_square, std::size_t count);
  // An outer step; leaves its gradient in `mean`, the replicas' mean. With a rate of 1 and without momentum
  // `parameters` are exactly `mean`. buffer: null without momentum.
  void (*outer)(const OuterRule& rule, float* mean, float* parameters, float* buffer, std::size_t count);
};

const Loops& loops();
InstructionSets<Loops> available_loops();

}  // namespace dtrun::worker::vector

namespace dtrun::worker {

template <>
const vector::Loops Copies<vector::Loops>::baseline;
template <>
const vector::Loops Copies<vector::Loops>::avx2;
template <>
const vector::Loops Copies<vector::Loops>::avx512;

}  // namespace dtrun::worker
