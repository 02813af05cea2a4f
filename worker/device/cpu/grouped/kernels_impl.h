// The loops behind kernels.h, for the instruction set of the file that includes this. Includes nothing that
// has inline functions with external linkage: a copy of one compiled for AVX-512 must not become the
// program's only copy. The including file defines DTRUN_KERNELS (a namespace), DTRUN_VECTOR (floats in a
// vector register, a divisor of kGroup), DTRUN_REGISTERS (vector registers), DTRUN_KERNELS_NAME and, where
// the set has the instruction, DTRUN_FUSED_MULTIPLY_ADD(a, b, c): a * b + c of vectors with one rounding.
#include "worker/device/cpu/grouped/kernels.h"

namespace dtrun::worker::grouped::DTRUN_KERNELS {
namespace {

constexpr int kVector = DTRUN_VECTOR;
constexpr bool kManyRegisters = DTRUN_REGISTERS >= 32;
constexpr int kTree = 64 / sizeof(float);
static_assert(kGroup == kTree);

using Vector = float __attribute__((vector_size(4 * kVector), may_alias));
using Samples =
    float __attribute__((vector_size(4 * kGroup), may_alias));  // one value of all samples of a group

inline Vector load(const float* from) { return *reinterpret_cast<const Vector*>(from); }
inline void store(float* to, Vector value) { *reinterpret_cast<Vector*>(to) = value; }
inline Vector zero() { return Vector{}; }
inline Vector at_least_zero(Vector value) {
  return value < zero() ? zero() : value;
}  // keeps NaN, as PyTorch

// sum + a * b. Rounded once wherever the instruction set can, by an explicit intrinsic: a compiler's own
// contraction depends on its version and the width of a vector (GCC 14 breaks up chains of 256 bits).
inline Vector multiply_add(Vector a, Vector b, Vector sum) {
#ifdef DTRUN_FUSED_MULTIPLY_ADD
  return DTRUN_FUSED_MULTIPLY_ADD(a, b, sum);
#else
  return sum + a * b;
#endif
}
inline Vector multiply_add(float a, Vector b, Vector sum) {
  return multiply_add(a - zero(), b, sum);  // x - 0 is x, also -0: a broadcast and no subtraction
}

inline int smaller(int a, int b) { return a < b ? a : b; }
inline int larger(int a, int b) { return a > b ? a : b; }

// ---- sums over the samples of a group -----------------------------------------------------------

// One level of the tree for a pair of values: neighbours `Distance` apart are added; a's sums end in the
// lanes whose bit Distance is clear, b's in the others.
template <int Distance>
inline Samples add_halves(Samples a, Samples b) {
  constexpr int d = Distance;
  constexpr auto from_low = [](int i) { return (i & d) ? (i - d) + kGroup : i; };
  constexpr auto from_high = [](int i) { return (i & d) ? i + kGroup : i + d; };
#define DTRUN_LANES(f) \
  f(0), f(1), f(2), f(3), f(4), f(5), f(6), f(7), f(8), f(9), f(10), f(11), f(12), f(13), f(14), f(15)
  const Samples low = __builtin_shufflevector(a, b, DTRUN_LANES(from_low));
  const Samples high = __builtin_shufflevector(a, b, DTRUN_LANES(from_high));
#undef DTRUN_LANES
  return low + high;
}

// sums[i] = sum over the samples of values[i], in a fixed tree: lanes 8 apart, then 4, 2, 1.
inline Samples sum_samples_16(const Samples* values) {
  Samples level[8];
  for (int i = 0; i < 8; ++i) level[i] = add_halves<8>(values[i], values[i + 8]);
  for (int i = 0; i < 4; ++i) level[i] = add_halves<4>(level[i], level[i + 4]);
  for (int i = 0; i < 2; ++i) level[i] = add_halves<2>(level[i], level[i + 2]);
  return add_halves<1>(level[0], level[1]);
}

// Up to 16 values; their places in the tree do not change the order within each sum.
inline void sum_samples(const float (*values)[kGroup], int count, float* sums) {
  Samples padded[kTree] = {};
  for (int i = 0; i < count; ++i) padded[i] = *reinterpret_cast<const Samples*>(values[i]);
  const Samples result = sum_samples_16(padded);
  for (int i = 0; i < count; ++i) sums[i] = result[i];
}

// ---- convolution --------------------------------------------------------------------------------

// A tile of kConvOut output channels x Columns output columns of one row.
constexpr int kConvOut = 4;

template <int Columns>
inline void conv_forward_tile(const ConvShape& s, const float* in, const float* const weight[kConvOut],
                              const float* bias[kConvOut], bool relu, float* const out[kConvOut]) {
  Vector sum[kConvOut][Columns];
  for (int o = 0; o < kConvOut; ++o) {
    for (int x = 0; x < Columns; ++x) sum[o][x] = zero() + *bias[o];
  }
  std::size_t tap = 0;
  for (int c = 0; c < s.in_channels; ++c) {
    for (int ky = 0; ky < s.kernel; ++ky) {
      const float* row = in + (static_cast<std::size_t>(c) * s.in_height + ky) * s.in_width * kGroup;
      for (int kx = 0; kx < s.kernel; ++kx, ++tap, row += kGroup) {
        Vector value[Columns];
        for (int x = 0; x < Columns; ++x) value[x] = load(row + x * kGroup);
        for (int o = 0; o < kConvOut; ++o) {
          const float w = weight[o][tap];
          for (int x = 0; x < Columns; ++x) sum[o][x] = multiply_add(w, value[x], sum[o][x]);
        }
      }
    }
  }
  for (int o = 0; o < kConvOut; ++o) {
    for (int x = 0; x < Columns; ++x) store(out[o] + x * kGroup, relu ? at_least_zero(sum[o][x]) : sum[o][x]);
  }
}

// One row of kConvOut channels. A last tile that would exceed the row is moved back, and computes some values
// again.
template <int Columns>
inline void conv_forward_row(const ConvShape& s, const float* in, const float* const weight[kConvOut],
                             const float* bias[kConvOut], bool relu, float* const out[kConvOut]) {
  for (int begin = 0; begin < s.out_width; begin += Columns) {
    const int x = smaller(begin, s.out_width - Columns);
    float* tile[kConvOut];
    for (int o = 0; o < kConvOut; ++o) tile[o] = out[o] + x * kGroup;
    conv_forward_tile<Columns>(s, in + x * kGroup, weight, bias, relu, tile);
  }
}

void conv_forward(const ConvShape& s, const float* in, const float* weight, const float* bias, bool relu,
                  float* out) {
  constexpr int kWide = kManyRegisters ? 4 : 2;
  const std::size_t taps = static_cast<std::size_t>(s.in_channels) * s.kernel * s.kernel;
  const std::size_t plane = static_cast<std::size_t>(s.out_height) * s.out_width * kGroup;
  for (int lanes = 0; lanes < kGroup; lanes += kVector) {
    for (int y = 0; y < s.out_height; ++y) {
      const float* rows = in + static_cast<std::size_t>(y) * s.in_width * kGroup + lanes;
      for (int begin = 0; begin < s.out_channels; begin += kConvOut) {
        const float *w[kConvOut], *b[kConvOut];
        float* row[kConvOut];
        for (int j = 0; j < kConvOut; ++j) {  // beyond the last channel: that channel again
          const int o = smaller(begin + j, s.out_channels - 1);
          w[j] = weight + o * taps;
          b[j] = bias + o;
          row[j] = out + o * plane + static_cast<std::size_t>(y) * s.out_width * kGroup + lanes;
        }
        if (s.out_width >= kWide)
          conv_forward_row<kWide>(s, rows, w, b, relu, row);
        else
          conv_forward_row<1>(s, rows, w, b, relu, row);
      }
    }
  }
}

// Adds to one row of each of Channels input channels the contribution of Columns columns of the output's
// gradient through TapColumns columns of the kernel, from kx on.
template <int Channels, int Columns, int TapColumns>
inline void conv_backward_data_tile(const ConvShape& s, const float* out_gradient,
                                    const float* const weight[Channels], int y, int kx,
                                    float* const in_row[Channels]) {
  constexpr int kSpan = Columns + TapColumns - 1;
  const std::size_t plane = static_cast<std::size_t>(s.out_height) * s.out_width * kGroup;
  const std::size_t taps = static_cast<std::size_t>(s.in_channels) * s.kernel * s.kernel;
  const int first = larger(0, y - s.out_height + 1);
  const int last = smaller(s.kernel - 1, y);
  Vector sum[Channels][kSpan];
  for (int c = 0; c < Channels; ++c) {
    for (int x = 0; x < kSpan; ++x) sum[c][x] = load(in_row[c] + x * kGroup);
  }
  for (int o = 0; o < s.out_channels; ++o) {
    for (int ky = first; ky <= last; ++ky) {
      const float* row = out_gradient + o * plane + static_cast<std::size_t>(y - ky) * s.out_width * kGroup;
      const std::size_t tap = o * taps + ky * s.kernel + kx;
      for (int x = 0; x < Columns; ++x) {
        const Vector value = load(row + x * kGroup);
        for (int c = 0; c < Channels; ++c) {
          for (int k = 0; k < TapColumns; ++k)
            sum[c][x + k] = multiply_add(weight[c][tap + k], value, sum[c][x + k]);
        }
      }
    }
  }
  for (int c = 0; c < Channels; ++c) {
    for (int x = 0; x < kSpan; ++x) store(in_row[c] + x * kGroup, sum[c][x]);
  }
}

template <int Channels, int TapColumns>
inline void conv_backward_data_taps(const ConvShape& s, const float* out_gradient,
                                    const float* const weight[Channels], int y, int kx,
                                    float* const in_row[Channels]) {
  constexpr int kWide = 8;
  for (int x = 0; x < s.out_width;) {
    float* tile[Channels];
    for (int c = 0; c < Channels; ++c) tile[c] = in_row[c] + (x + kx) * kGroup;
    const float* from = out_gradient + x * kGroup;
    if (x + kWide <= s.out_width) {
      conv_backward_data_tile<Channels, kWide, TapColumns>(s, from, weight, y, kx, tile);
      x += kWide;
    } else {
      conv_backward_data_tile<Channels, 1, TapColumns>(s, from, weight, y, kx, tile);
      x += 1;
    }
  }
}

// All rows of Channels input channels, from `begin` on.
template <int Channels>
inline void conv_backward_data_channels(const ConvShape& s, const float* out_gradient, const float* weight,
                                        int begin, float* in_gradient) {
  const std::size_t row = static_cast<std::size_t>(s.in_width) * kGroup;
  for (int y = 0; y < s.in_height; ++y) {
    const float* w[Channels];
    float* in_row[Channels];
    for (int j = 0; j < Channels; ++j) {
      w[j] = weight + static_cast<std::size_t>(begin + j) * s.kernel * s.kernel;
      in_row[j] = in_gradient + (static_cast<std::size_t>(begin + j) * s.in_height + y) * row;
    }
    int kx = 0;
    for (; kx + 5 <= s.kernel; kx += 5)
      conv_backward_data_taps<Channels, 5>(s, out_gradient, w, y, kx, in_row);
    for (; kx + 3 <= s.kernel; kx += 3)
      conv_backward_data_taps<Channels, 3>(s, out_gradient, w, y, kx, in_row);
    for (; kx < s.kernel; kx += 1) conv_backward_data_taps<Channels, 1>(s, out_gradient, w, y, kx, in_row);
  }
}

void conv_backward_data(const ConvShape& s, const float* out_gradient, const float* weight,
                        float* in_gradient) {
  constexpr int kChannels = kManyRegisters ? 2 : 1;
  const std::size_t values = static_cast<std::size_t>(s.in_channels) * s.in_height * s.in_width;
  __builtin_memset(in_gradient, 0, values * kGroup * sizeof(float));
  for (int lanes = 0; lanes < kGroup; lanes += kVector) {
    int c = 0;
    for (; c + kChannels <= s.in_channels; c += kChannels)
      conv_backward_data_channels<kChannels>(s, out_gradient + lanes, weight, c, in_gradient + lanes);
    for (; c < s.in_channels; ++c)
      conv_backward_data_channels<1>(s, out_gradient + lanes, weight, c, in_gradient + lanes);
  }
}

// Gradient of TapColumns neighbouring weights of Channels output channels, not yet summed over the samples.
// in: the first row of the input that the weights' row of the kernel is applied to; out_gradient: the first
// channel.
template <int Channels, int TapColumns>
inline void conv_backward_weights_tile(const ConvShape& s, int groups, const float* in,
                                       const float* out_gradient, float (*matmuls)[kGroup]) {
  const std::size_t in_group = static_cast<std::size_t>(s.in_channels) * s.in_height * s.in_width * kGroup;
  const std::size_t plane = static_cast<std::size_t>(s.out_height) * s.out_width * kGroup;
  Vector sum[Channels][TapColumns] = {};
  for (int g = 0; g < groups; ++g) {
    for (int y = 0; y < s.out_height; ++y) {
      const float* in_row = in + g * in_group + static_cast<std::size_t>(y) * s.in_width * kGroup;
      const float* out_row =
          out_gradient + g * plane * s.out_channels + static_cast<std::size_t>(y) * s.out_width * kGroup;
      for (int x = 0; x < s.out_width; ++x, in_row += kGroup, out_row += kGroup) {
        for (int o = 0; o < Channels; ++o) {
          const Vector d = load(out_row + o * plane);
          for (int k = 0; k < TapColumns; ++k)
            sum[o][k] = multiply_add(d, load(in_row + k * kGroup), sum[o][k]);
        }
      }
    }
  }
  for (int o = 0; o < Channels; ++o) {
    for (int k = 0; k < TapColumns; ++k) store(matmuls[o * TapColumns + k], sum[o][k]);
  }
}

template <int Channels, int TapColumns>
inline void conv_backward_weights_taps(const ConvShape& s, int groups, const float* in,
                                       const float* out_gradient, float* weight_gradient) {
  constexpr int kValues = Channels * TapColumns;
  const std::size_t taps = static_cast<std::size_t>(s.in_channels) * s.kernel * s.kernel;
  alignas(64) float matmuls[kValues][kGroup];
  for (int lanes = 0; lanes < kGroup; lanes += kVector) {
    conv_backward_weights_tile<Channels, TapColumns>(s, groups, in + lanes, out_gradient + lanes,
                                                     reinterpret_cast<float(*)[kGroup]>(matmuls[0] + lanes));
  }
  float sums[kValues];
  for (int i = 0; i < kValues; i += kTree) sum_samples(matmuls + i, smaller(kTree, kValues - i), sums + i);
  for (int o = 0; o < Channels; ++o) {
    for (int k = 0; k < TapColumns; ++k) weight_gradient[o * taps + k] = sums[o * TapColumns + k];
  }
}

template <int Channels>
inline void conv_backward_weights_channels(const ConvShape& s, int groups, const float* in,
                                           const float* out_gradient, float* weight_gradient) {
  for (int c = 0; c < s.in_channels; ++c) {
    for (int ky = 0; ky < s.kernel; ++ky) {
      const float* rows = in + (static_cast<std::size_t>(c) * s.in_height + ky) * s.in_width * kGroup;
      float* to = weight_gradient + (c * s.kernel + ky) * s.kernel;
      int kx = 0;
      for (; kx + 5 <= s.kernel; kx += 5)
        conv_backward_weights_taps<Channels, 5>(s, groups, rows + kx * kGroup, out_gradient, to + kx);
      for (; kx + 3 <= s.kernel; kx += 3)
        conv_backward_weights_taps<Channels, 3>(s, groups, rows + kx * kGroup, out_gradient, to + kx);
      for (; kx < s.kernel; kx += 1)
        conv_backward_weights_taps<Channels, 1>(s, groups, rows + kx * kGroup, out_gradient, to + kx);
    }
  }
}

inline void conv_backward_bias(const ConvShape& s, int groups, const float* out_gradient,
                               float* bias_gradient) {
  const std::size_t pixels = static_cast<std::size_t>(s.out_height) * s.out_width;
  for (int o = 0; o < s.out_channels; ++o) {
    Samples sum = {};
    for (int g = 0; g < groups; ++g) {
      const float* from = out_gradient + (static_cast<std::size_t>(g) * s.out_channels + o) * pixels * kGroup;
      for (std::size_t i = 0; i < pixels; ++i) sum += *reinterpret_cast<const Samples*>(from + i * kGroup);
    }
    alignas(64) float values[1][kGroup];
    *reinterpret_cast<Samples*>(values[0]) = sum;
    sum_samples(values, 1, bias_gradient + o);
  }
}

void conv_backward_weights(const ConvShape& s, int groups, const float* in, const float* out_gradient,
                           float* weight_gradient, float* bias_gradient) {
  constexpr int kChannels = kManyRegisters ? 4 : 2;
  const std::size_t taps = static_cast<std::size_t>(s.in_channels) * s.kernel * s.kernel;
  const std::size_t plane = static_cast<std::size_t>(s.out_height) * s.out_width * kGroup;
  int o = 0;
  for (; o + kChannels <= s.out_channels; o += kChannels)
    conv_backward_weights_channels<kChannels>(s, groups, in, out_gradient + o * plane,
                                              weight_gradient + o * taps);
  for (; o < s.out_channels; ++o)
    conv_backward_weights_channels<1>(s, groups, in, out_gradient + o * plane, weight_gradient + o * taps);
  conv_backward_bias(s, groups, out_gradient, bias_gradient);
}

// ---- max-pooling --------------------------------------------------------------------------------

inline Vector larger_or_nan(Vector value, Vector best) {
  return ((value > best) | (value != value)) ? value : best;
}

void pool_forward(const PoolShape& s, const float* in, float* out) {
  const std::size_t in_row = static_cast<std::size_t>(s.in_width) * kGroup;
  for (int c = 0; c < s.channels; ++c) {
    for (int y = 0; y < s.out_height; ++y) {
      const float* rows = in + (static_cast<std::size_t>(c) * s.in_height + y * s.kernel) * in_row;
      for (int lane = 0; lane < s.out_width * kGroup; lane += kVector, out += kVector) {
        const int x = lane / kGroup, sample = lane % kGroup;
        const float* window = rows + x * s.kernel * kGroup + sample;
        Vector best = load(window);
        for (int ky = 0; ky < s.kernel; ++ky) {
          for (int kx = 0; kx < s.kernel; ++kx)
            best = larger_or_nan(load(window + ky * in_row + kx * kGroup), best);
        }
        store(out, best);
      }
    }
  }
}

// Gives `left`, the gradient of one window, to the first element that equals its maximum.
inline void pool_backward_window(int kernel, std::size_t in_row, const float* in, Vector best, Vector left,
                                 float* in_gradient) {
  for (int ky = 0; ky < kernel; ++ky) {
    for (int kx = 0; kx < kernel; ++kx) {
      const std::size_t at = ky * in_row + kx * kGroup;
      const auto wins = load(in + at) == best;
      store(in_gradient + at, wins ? left : zero());
      left = wins ? zero() : left;
    }
  }
}

void pool_backward(const PoolShape& s, const float* in, const float* out, const float* out_gradient,
                   bool in_is_relu, float* in_gradient) {
  const std::size_t in_row = static_cast<std::size_t>(s.in_width) * kGroup;
  if (s.out_height * s.kernel != s.in_height ||
      s.out_width * s.kernel != s.in_width)  // a remainder gets no gradient
    __builtin_memset(in_gradient, 0, s.channels * s.in_height * in_row * sizeof(float));
  for (int c = 0; c < s.channels; ++c) {
    for (int y = 0; y < s.out_height; ++y) {
      const std::size_t rows = (static_cast<std::size_t>(c) * s.in_height + y * s.kernel) * in_row;
      for (int lane = 0; lane < s.out_width * kGroup; lane += kVector) {
        const std::size_t window = rows + lane / kGroup * s.kernel * kGroup + lane % kGroup;
        const Vector best = load(out), gradient = load(out_gradient);
        const Vector left = in_is_relu ? (best > zero() ? gradient : zero()) : gradient;
        pool_backward_window(s.kernel, in_row, in + window, best, left, in_gradient + window);
        out += kVector, out_gradient += kVector;
      }
    }
  }
}

// ---- fully connected ----------------------------------------------------------------------------

constexpr int kBlock = kManyRegisters ? 8 : 4;  // features at a time

void linear_forward(const LinearShape& s, const float* in, const float* weight, const float* bias, bool relu,
                    float* out) {
  for (int lanes = 0; lanes < kGroup; lanes += kVector) {
    for (int begin = 0; begin < s.out_features; begin += kBlock) {
      const float* w[kBlock];
      Vector sum[kBlock];
      for (int j = 0; j < kBlock; ++j) {  // beyond the last feature: that feature again
        const int o = smaller(begin + j, s.out_features - 1);
        w[j] = weight + static_cast<std::size_t>(o) * s.in_features;
        sum[j] = zero() + bias[o];
      }
      for (int i = 0; i < s.in_features; ++i) {
        const Vector value = load(in + i * kGroup + lanes);
        for (int j = 0; j < kBlock; ++j) sum[j] = multiply_add(w[j][i], value, sum[j]);
      }
      for (int j = 0; j < kBlock && begin + j < s.out_features; ++j)
        store(out + (begin + j) * kGroup + lanes, relu ? at_least_zero(sum[j]) : sum[j]);
    }
  }
}

void linear_backward_data(const LinearShape& s, const float* out_gradient, const float* weight,
                          float* in_gradient) {
  for (int lanes = 0; lanes < kGroup; lanes += kVector) {
    for (int begin = 0; begin < s.in_features; begin += kBlock) {
      Vector sum[kBlock] = {};
      int column[kBlock];
      for (int j = 0; j < kBlock; ++j) column[j] = smaller(begin + j, s.in_features - 1);
      for (int o = 0; o < s.out_features; ++o) {
        const Vector value = load(out_gradient + o * kGroup + lanes);
        const float* w = weight + static_cast<std::size_t>(o) * s.in_features;
        for (int j = 0; j < kBlock; ++j) sum[j] = multiply_add(w[column[j]], value, sum[j]);
      }
      for (int j = 0; j < kBlock && begin + j < s.in_features; ++j)
        store(in_gradient + (begin + j) * kGroup + lanes, sum[j]);
    }
  }
}

void group_to_rows(std::size_t values, const float* columns, float* rows) {
  for (std::size_t v = 0; v < values; ++v) {
    for (int n = 0; n < kGroup; ++n) rows[n * values + v] = columns[v * kGroup + n];
  }
}

void rows_to_group(int samples, std::size_t values, const float* rows, float* columns) {
  for (std::size_t v = 0; v < values; ++v) {
    for (int n = 0; n < kGroup; ++n) columns[v * kGroup + n] = 0;
    for (int n = 0; n < samples; ++n) columns[v * kGroup + n] = rows[n * values + v];
  }
}

// Gradient of kVector x Vectors neighbouring weights of Outputs rows: the sum over samples of (the sample's
// gradient) x (the sample's inputs), in sample order.
constexpr int kLinearRows = kManyRegisters ? 10 : 4;

template <int Outputs, int Vectors>
inline void linear_weights_tile(const LinearShape& s, int groups, const float* gradient, const float* in_rows,
                                int columns, float* to) {
  const std::size_t stride = padded_features(s.in_features);
  const std::size_t group_stride = static_cast<std::size_t>(s.out_features) * kGroup;
  Vector sum[Outputs][Vectors] = {};
  for (int g = 0; g < groups; ++g) {
    for (int n = 0; n < kGroup; ++n) {
      const float* row = in_rows + (static_cast<std::size_t>(g) * kGroup + n) * stride;
      for (int v = 0; v < Vectors; ++v) {
        const Vector value = load(row + v * kVector);
        for (int o = 0; o < Outputs; ++o)
          sum[o][v] = multiply_add(gradient[g * group_stride + o * kGroup + n], value, sum[o][v]);
      }
    }
  }
  for (int o = 0; o < Outputs; ++o) {  // the weights' rows are neither aligned nor padded
    for (int v = 0; v < Vectors; ++v) {
      const int count = smaller(kVector, columns - v * kVector);
      if (count > 0)
        __builtin_memcpy(to + o * static_cast<std::size_t>(s.in_features) + v * kVector, &sum[o][v],
                         count * sizeof(float));
    }
  }
}

template <int Outputs>
inline void linear_weights_rows(const LinearShape& s, int groups, const float* gradient, const float* in_rows,
                                float* to) {
  constexpr int kVectors = kVector == kGroup ? 1 : 2;
  constexpr int kColumns = kVector * kVectors;
  static_assert(kGroup % kColumns == 0);
  for (int i = 0; i < s.in_features; i += kColumns)
    linear_weights_tile<Outputs, kVectors>(s, groups, gradient, in_rows + i, s.in_features - i, to + i);
}

// [features][kGroup] of every group to [kGroup][padded features]; the padding is left as it is.
inline void linear_in_rows(const LinearShape& s, int groups, const float* in, float* in_rows) {
  const std::size_t stride = padded_features(s.in_features);
  for (int g = 0; g < groups; ++g) {
    for (int i = 0; i < s.in_features; ++i, in += kGroup) {
      for (int n = 0; n < kGroup; ++n)
        in_rows[(static_cast<std::size_t>(g) * kGroup + n) * stride + i] = in[n];
    }
  }
}

inline void linear_backward_bias(const LinearShape& s, int groups, const float* out_gradient,
                                 float* bias_gradient) {
  alignas(64) float values[kTree][kGroup];
  for (int begin = 0; begin < s.out_features; begin += kTree) {
    const int count = smaller(kTree, s.out_features - begin);
    for (int j = 0; j < count; ++j) {
      Samples sum = {};
      for (int g = 0; g < groups; ++g)
        sum += *reinterpret_cast<const Samples*>(
            out_gradient + (static_cast<std::size_t>(g) * s.out_features + begin + j) * kGroup);
      *reinterpret_cast<Samples*>(values[j]) = sum;
    }
    sum_samples(values, count, bias_gradient + begin);
  }
}

void linear_backward_weights(const LinearShape& s, int groups, const float* in, const float* out_gradient,
                             float* in_rows, float* weight_gradient, float* bias_gradient) {
  linear_in_rows(s, groups, in, in_rows);
  int o = 0;
  const auto row = static_cast<std::size_t>(s.in_features);
  for (; o + kLinearRows <= s.out_features; o += kLinearRows)
    linear_weights_rows<kLinearRows>(s, groups, out_gradient + o * kGroup, in_rows,
                                     weight_gradient + o * row);
  for (; o < s.out_features; ++o)
    linear_weights_rows<1>(s, groups, out_gradient + o * kGroup, in_rows, weight_gradient + o * row);
  linear_backward_bias(s, groups, out_gradient, bias_gradient);
}

constexpr Kernels kKernels = {
    .instruction_set = DTRUN_KERNELS_NAME,
    .conv_forward = conv_forward,
    .conv_backward_data = conv_backward_data,
    .conv_backward_weights = conv_backward_weights,
    .pool_forward = pool_forward,
    .pool_backward = pool_backward,
    .linear_forward = linear_forward,
    .linear_backward_data = linear_backward_data,
    .linear_backward_weights = linear_backward_weights,
    .rows_to_group = rows_to_group,
    .group_to_rows = group_to_rows,
};

}  // namespace
}  // namespace dtrun::worker::grouped::DTRUN_KERNELS

namespace dtrun::worker {

template <>
const grouped::Kernels Copies<grouped::Kernels>::DTRUN_KERNELS = grouped::DTRUN_KERNELS::kKernels;

}  // namespace dtrun::worker
