// A matmul as data: exactly the parameters that decide the library's algorithm.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace dtrun::worker::schedule {

// The operation on a matmul before it is written.
enum class Epilogue : std::uint8_t {
  kNone,
  kBias,          // `bias` [n] is added to each row
  kBiasRelu,      // and ReLU follows
  kBiasGelu,      // and GELU follows; GELU's input is written to `aux` [m][n] (c's stride)
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
  bool bf16 = false;  // a, b, and the epilogue's inputs; else fp32
  bool wide = false;  // c is fp32 although a and b are bf16, and so are sums that the epilogue writes
  bool add = false;
  Epilogue epilogue = Epilogue::kNone;
  // The least alignments of a, b, c and `bias` in bytes: powers of two up to 256.
  int a_alignment = 256, b_alignment = 256, c_alignment = 256, bias_alignment = 256;

  auto operator<=>(const MatmulShape&) const = default;
};

// Whether c and other outputs are bf16.
inline bool narrow(const MatmulShape& shape) { return shape.bf16 && !shape.wide; }
inline bool has_aux(const MatmulShape& shape) {
  return shape.epilogue == Epilogue::kBiasGelu || shape.epilogue == Epilogue::kGeluGradient;
}

// Bytes of whole rows, up to the next one's begin. `bias` is large enough for every epilogue.
struct OperandBytes {
  std::size_t a, b, c, bias, aux;
};
inline OperandBytes bytes_of(const MatmulShape& s) {
  const auto bytes = [](std::int64_t rows, std::int64_t stride, bool bf16) {
    return static_cast<std::size_t>(rows * stride) * (bf16 ? 2 : 4);
  };
  return {.a = bytes(s.a_transposed ? s.k : s.m, s.a_stride, s.bf16),
          .b = bytes(s.b_transposed ? s.n : s.k, s.b_stride, s.bf16),
          .c = bytes(s.m, s.c_stride, narrow(s)),
          .bias = bytes(1, std::max(s.m, s.n), narrow(s)),
          .aux = has_aux(s) ? bytes(s.m, s.c_stride, narrow(s)) : 0};
}

}  // namespace dtrun::worker::schedule
