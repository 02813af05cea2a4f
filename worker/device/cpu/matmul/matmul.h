// A matmul as data, for the calling thread: of fp32 by multiplier.h, of bf16 by onednn/matmul.h.
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

// Columns of a matrix that is not in memory as such: the element of row k and column j is at[steps[k] +
// runs[j / run] + j % run]. Up to 15 floats behind a run can be read.
struct Gathered {
  const float* at;
  const std::int32_t *steps, *runs;
  std::int64_t run;
};

// c = a b, or c += a b with `add`, of fp32, in `parts` parts of k, each of `k`, one after the other: a [m, k]
// of the first one, the next ones part_stride floats behind each other, b [parts * k, n].
struct GatheredMatmul {
  std::int64_t m, n, k;
  bool a_transposed = false;
  const float* a;
  std::int64_t a_stride, parts = 1, part_stride = 0;
  Gathered b;
  bool add;
  float* c;
  std::int64_t c_stride;
};

// Images [planes][height][width] into [planes][phases][phases][out_height][out_width], of which (y, x) of
// phase (p, q) is the image's (y * stride + p - padding, x * stride + q - padding). What lies outside of the
// image is left as it is.
struct Spread {
  std::int64_t planes, height, width, stride, phases, padding, out_height, out_width;
};

}  // namespace dtrun::worker::matmul
