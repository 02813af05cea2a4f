// A product of matrices as data: what decides which of the library's algorithms computes it, and nothing
// else.
#pragma once

#include <cstdint>

namespace dtrun::worker::cuda {

// What is done to a product before it is written.
enum class Epilogue : std::uint8_t {
  kNone,
  kBias,          // `bias` [n] is added to each row
  kBiasRelu,      // and ReLU follows
  kBiasGelu,      // and GELU follows; what it gets is written to `aux` [m][n] (c's stride)
  kGeluGradient,  // times GELU's slope at `aux` [m][n] (c's stride)
  kRowSums,       // the sums of op(a)'s rows are written to `bias` [m]
  kColumnSums,    // the sums of op(b)'s columns are written to `bias` [n]
};

// c[m][n] = op(a)[m][k] op(b)[k][n], plus c where `add`. Rows lie next to each other, `stride` elements
// apart; a transposed operand lies in memory as [k][m], or [n][k].
struct MatmulShape {
  std::int64_t m = 0, n = 0, k = 0;
  bool a_transposed = false, b_transposed = false;
  std::int64_t a_stride = 0, b_stride = 0, c_stride = 0;
  bool bf16 = false;  // a, b, and what the epilogue reads; else fp32
  bool wide = false;  // c is fp32 although a and b are bf16, and so are sums that the epilogue writes
  bool add = false;
  Epilogue epilogue = Epilogue::kNone;
  // That a, b, c and `bias` have at least, in bytes: a power of two of at most 256.
  int a_alignment = 256, b_alignment = 256, c_alignment = 256, bias_alignment = 256;

  auto operator<=>(const MatmulShape&) const = default;
};

}  // namespace dtrun::worker::cuda
