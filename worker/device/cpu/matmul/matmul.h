// A matmul as data, for the calling thread: of fp32 by fp32_multiplier.h, of bf16 by onednn/matmul.h.
#pragma once

#include <cstdint>

namespace dtrun::worker::matmul {

using Bf16 = std::uint16_t;  // the upper half of a float's bits

// Row-major. c = alpha * a b + beta * c + bias with a [m, k], b [k, n], c [m, n]; a_transposed: a is [k, m]
// in memory; b_transposed: b is [n, k]. The strides are elements from one row in memory to the next. c
// overlaps neither a nor b.
template <typename Element>  // float or Bf16
struct Matmul {
  bool a_transposed = false, b_transposed = false;
  std::int64_t m = 0, n = 0, k = 0;
  float alpha = 1;
  const Element* a = nullptr;
  std::int64_t a_stride = 0;
  const Element* b = nullptr;
  std::int64_t b_stride = 0;
  float beta = 0;               // 1, or 0: then c is only written
  const float* bias = nullptr;  // [n], of each row; null: none. Not with beta.
  float* c = nullptr;
  std::int64_t c_stride = 0;
};

}  // namespace dtrun::worker::matmul
