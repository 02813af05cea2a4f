// The three matmuls of a convolution, on the samples of a lane. In fp32 both classes give each element the
// sum that matmul/kernels.h promises: of a window's values in the order of the weight's, of a sample's
// positions in their order, and of the out channels for each value of a window, which are then added up in
// that order. Our kernels of bf16 add up in one chain what is gathered together, positions of several samples
// and out channels for all values of a window: they are so fast that the ends of short chains would take as
// long.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "worker/base/buffer.h"
#include "worker/device/cpu/planned/gathered_convolution.h"
#include "worker/device/cpu/planned/kernels.h"
#include "worker/device/cpu/planned/matmuls.h"
#include "worker/schedule/schedule.h"

namespace dtrun::worker::planned {

// Sample by sample, with a matrix of all windows (Caffe's im2col).
template <typename Matmuls>
class Convolutions {
 public:
  // Both must outlive this; `columns`: Plan::columns.
  Convolutions(Matmuls& matmuls, float* columns) : matmuls_(matmuls), columns_(columns) {}

  // `weight`: its offset. `add`: to what is in `out`, the bias.
  void forward(const schedule::ImageShape& s, const float* in, std::size_t weight, bool add, float* out) {
    const Sizes c(s);
    const auto* const w = matmuls_.weight(weight);
    for (int n = 0; n < s.samples; ++n, in += s.in_size(), out += s.out_size()) {
      k_.im2col(windows(s), in, columns_);
      matmuls_.multiply({.m = c.channels,
                         .n = c.positions,
                         .k = c.patch,
                         .a = w,
                         .a_stride = c.patch,
                         .b = matmuls_.operand(kRight, columns_, c.patch * c.positions),
                         .b_stride = c.positions,
                         .beta = add ? 1.0f : 0.0f,
                         .c = out,
                         .c_stride = c.positions});
    }
  }
  void weight_gradient(const schedule::ImageShape& s, const float* in, const float* d, bool add, float* out) {
    const Sizes c(s);
    for (int n = 0; n < s.samples; ++n, in += s.in_size(), d += s.out_size()) {
      k_.im2col(windows(s), in, columns_);
      matmuls_.multiply({.b_transposed = true,
                         .m = c.channels,
                         .n = c.patch,
                         .k = c.positions,
                         .a = matmuls_.operand(kLeft, d, s.out_size()),
                         .a_stride = c.positions,
                         .b = matmuls_.operand(kRight, columns_, c.patch * c.positions),
                         .b_stride = c.positions,
                         .beta = n > 0 || add ? 1.0f : 0.0f,
                         .c = out,
                         .c_stride = c.patch});
    }
  }
  void in_gradient(const schedule::ImageShape& s, std::size_t weight, const float* d, bool add, float* out) {
    const Sizes c(s);
    if (!add) std::fill_n(out, s.samples * s.in_size(), 0.0f);
    const auto* const w = matmuls_.weight(weight);
    for (int n = 0; n < s.samples; ++n, d += s.out_size(), out += s.in_size()) {
      matmuls_.multiply({.a_transposed = true,
                         .m = c.patch,
                         .n = c.positions,
                         .k = c.channels,
                         .a = w,
                         .a_stride = c.patch,
                         .b = matmuls_.operand(kLeft, d, s.out_size()),
                         .b_stride = c.positions,
                         .c = columns_,
                         .c_stride = c.positions});
      k_.col2im(windows(s), columns_, out);
    }
  }

 private:
  static Windows windows(const schedule::ImageShape& s) {
    return {s.in_channels, s.height, s.width, s.kernel, s.stride, s.padding, s.out_height(), s.out_width()};
  }
  struct Sizes {
    explicit Sizes(const schedule::ImageShape& s)
        : channels(s.out_channels),
          patch(std::int64_t{s.in_channels} * s.kernel * s.kernel),
          positions(std::int64_t{s.out_height()} * s.out_width()) {}
    std::int64_t channels, patch, positions;
  };

  const Kernels& k_ = kernels();
  Matmuls& matmuls_;
  float* const columns_;
};

// Some samples at a time, without a matrix of windows: each panel of a matmul is gathered beside its product.
template <>
class Convolutions<KernelMatmuls> {
 public:
  Convolutions(KernelMatmuls& matmuls, float* columns)
      : matmuls_(matmuls), k_(matmuls.kernels()), scratch_(columns) {}

  void forward(const schedule::ImageShape& s, const float* in, std::size_t weight, bool add, float* out) {
    const ForwardColumns g(s);
    const auto positions = static_cast<std::int64_t>(s.out_size()) / s.out_channels;
    const bool in_place = g.together == 1;
    const std::int64_t stride = in_place ? positions : row_stride(g.together * positions);
    float* const images = scratch_;
    float* const sums = images + g.together * g.image + kSlack;
    std::fill(images, sums, 0.0f);
    for (std::int64_t n = 0; n < s.samples; n += g.together) {
      const std::int64_t count = std::min<std::int64_t>(g.together, s.samples - n);
      for (std::int64_t i = 0; i < count; ++i, in += s.in_size())
        k_.spread(g.spread, in, images + i * g.image);
      float* const c = in_place ? out : sums;
      if (add && !in_place) to_rows(count, s.out_channels, positions, stride, out, c);
      matmuls_.multiply_gathered({.m = s.out_channels,
                                  .n = count * positions,
                                  .k = static_cast<std::int64_t>(g.steps.size()),
                                  .a = matmuls_.weight(weight),
                                  .a_stride = static_cast<std::int64_t>(g.steps.size()),
                                  .b = {images, g.steps.data(), g.runs.data(), s.out_width()},
                                  .add = add,
                                  .c = c,
                                  .c_stride = stride});
      if (!in_place) to_images(count, s.out_channels, positions, stride, c, out);
      out += count * s.out_size();
    }
  }

  void weight_gradient(const schedule::ImageShape& s, const float* in, const float* d, bool add, float* out) {
    const WeightGradientColumns g(s);
    const auto positions = static_cast<std::int64_t>(s.out_size()) / s.out_channels;
    const std::int64_t taps = s.kernel * s.kernel, patch = s.in_channels * taps;
    float* const images = scratch_;
    float* const sums = images + g.together * g.image + kSlack;
    float* const rows = sums + s.out_channels * patch;
    std::fill(images, sums, 0.0f);
    if (add) transpose(s.out_channels, s.in_channels, taps, out, sums);
    for (std::int64_t n = 0; n < s.samples; n += g.together) {
      const std::int64_t count = std::min<std::int64_t>(g.together, s.samples - n);
      for (std::int64_t i = 0; i < count; ++i, in += s.in_size())
        k_.transpose_planes(s.in_channels, s.height * s.width, in, g.places.data(), images + i * g.image);
      const bool chain = chains_ && count > 1;
      const std::int64_t stride = chain ? row_stride(count * positions) : positions;
      if (chain) to_rows(count, s.out_channels, positions, stride, d, rows);
      matmuls_.multiply_gathered({.m = s.out_channels,
                                  .n = patch,
                                  .k = chain ? count * positions : positions,
                                  .a = chain ? rows : d,
                                  .a_stride = stride,
                                  .parts = chain ? 1 : count,
                                  .part_stride = static_cast<std::int64_t>(s.out_size()),
                                  .b = {images, g.steps.data(), g.runs.data(), s.kernel * s.in_channels},
                                  .add = n > 0 || add,
                                  .c = sums,
                                  .c_stride = patch});
      d += count * s.out_size();
    }
    transpose(s.out_channels, taps, s.in_channels, sums, out);
  }

  void in_gradient(const schedule::ImageShape& s, std::size_t weight, const float* d, bool add, float* out) {
    const InGradientColumns g(s);
    // No tap reaches the other pixels.
    if (!add && static_cast<int>(g.phases.size()) < s.stride * s.stride)
      std::fill_n(out, s.samples * s.in_size(), 0.0f);
    const std::int64_t matrix = std::int64_t{s.out_channels} * s.in_channels;
    float* const images = scratch_;
    float* const weights = images + g.together * g.image + kSlack;
    float* const sums = weights + s.kernel * s.kernel * matrix;
    std::fill(images, weights, 0.0f);
    by_tap(s, g, matmuls_.weight(weight), weights);
    for (std::int64_t n = 0; n < s.samples; n += g.together) {
      const std::int64_t count = std::min<std::int64_t>(g.together, s.samples - n);
      for (std::int64_t i = 0; i < count; ++i, d += s.out_size())
        k_.spread(g.spread, d, images + i * g.image);
      const float* taps = weights;
      for (const InGradientColumns::PixelPhase& phase : g.phases) {
        const std::int64_t columns = std::int64_t{phase.rows} * phase.columns;
        // Beside sums that are apart there must be room for a tap's.
        const bool in_place = g.together == 1 && s.stride == 1 && columns % kSameSet != 0 &&
                              (chains_ || !InGradientColumns::apart(s));
        const std::int64_t stride = in_place ? columns : row_stride(g.together * columns);
        float* const c = in_place ? out : sums;
        if (add && !in_place) move_phase<false>(s, phase, count, stride, out, c);
        add_taps(s, phase, count * columns, taps, images, add, c, stride);
        if (!in_place) move_phase<true>(s, phase, count, stride, out, c);
        taps += static_cast<std::int64_t>(phase.taps.size()) * matrix;
      }
      out += count * s.in_size();
    }
  }

 private:
  // Images [count][channels][size] as rows of all of them, [channels][stride].
  static void to_rows(std::int64_t count, std::int64_t channels, std::int64_t size, std::int64_t stride,
                      const float* images, float* rows) {
    for (std::int64_t n = 0; n < count; ++n)
      for (std::int64_t c = 0; c < channels; ++c, images += size)
        std::copy_n(images, size, rows + c * stride + n * size);
  }
  static void to_images(std::int64_t count, std::int64_t channels, std::int64_t size, std::int64_t stride,
                        const float* rows, float* images) {
    for (std::int64_t n = 0; n < count; ++n)
      for (std::int64_t c = 0; c < channels; ++c, images += size)
        std::copy_n(rows + c * stride + n * size, size, images);
  }
  // Each of `matrices` is transposed, from [rows][columns].
  static void transpose(std::int64_t matrices, std::int64_t rows, std::int64_t columns, const float* from,
                        float* to) {
    for (std::int64_t m = 0; m < matrices; ++m, to += rows * columns)
      for (std::int64_t row = 0; row < rows; ++row)
        for (std::int64_t column = 0; column < columns; ++column) to[column * rows + row] = *from++;
  }
  // The weights as [in_channels] of each out channel, of each phase's taps.
  static void by_tap(const schedule::ImageShape& s, const InGradientColumns& g, const float* from,
                     float* to) {
    const int all = s.kernel * s.kernel, matrix = s.out_channels * s.in_channels;
    for (const InGradientColumns::PixelPhase& phase : g.phases)
      for (const int tap : phase.taps)
        for (int i = 0; i < matrix; ++i) *to++ = from[std::int64_t{i} * all + tap];
  }
  // The sum of the products of a phase's taps, into `c` of so many rows, behind which there is room for
  // others.
  void add_taps(const schedule::ImageShape& s, const InGradientColumns::PixelPhase& phase,
                std::int64_t columns, const float* weights, const float* images, bool add, float* c,
                std::int64_t stride) {
    const auto taps = static_cast<std::int64_t>(phase.taps.size());
    matmul::GatheredMatmul matmul{.m = s.in_channels,
                                  .n = columns,
                                  .k = chains_ ? taps * s.out_channels : s.out_channels,
                                  .a_transposed = true,
                                  .a = weights,
                                  .a_stride = s.in_channels,
                                  .parts = chains_ ? 1 : taps,
                                  .part_stride = std::int64_t{s.out_channels} * s.in_channels,
                                  .b = {images, phase.steps.data(), phase.runs.data(), phase.columns},
                                  .add = add,
                                  .c = c,
                                  .c_stride = stride};
    if (chains_ || !InGradientColumns::apart(s)) return matmuls_.multiply_gathered(matmul);
    float* const product = c + s.in_channels * stride;
    matmul.parts = 1, matmul.add = false;
    for (std::int64_t tap = 0; tap < taps; ++tap, add = true) {
      matmul.c = add ? product : c;
      matmuls_.multiply_gathered(matmul);
      if (add) kernels().add(s.in_channels * stride, c, product, c);
      matmul.a += matmul.part_stride, matmul.b.steps += s.out_channels;
    }
  }
  // Between [count][channels][height][width] and the pixels of a phase, [channels][stride].
  template <bool kBack>
  static void move_phase(const schedule::ImageShape& s, const InGradientColumns::PixelPhase& phase,
                         std::int64_t count, std::int64_t stride, float* images, float* rows) {
    if (s.stride == 1) {
      const std::int64_t size = std::int64_t{s.height} * s.width;
      return kBack ? to_images(count, s.in_channels, size, stride, rows, images)
                   : to_rows(count, s.in_channels, size, stride, images, rows);
    }
    for (std::int64_t n = 0; n < count; ++n)
      for (std::int64_t c = 0; c < s.in_channels; ++c) {
        float* pixels = rows + c * stride + n * phase.rows * phase.columns;
        for (int y = 0; y < phase.rows; ++y, pixels += phase.columns) {
          const std::int64_t row = (n * s.in_channels + c) * s.height + y * s.stride + phase.down;
          float* const at = images + row * s.width + phase.right;
          for (int x = 0; x < phase.columns; ++x)
            if constexpr (kBack)
              at[x * s.stride] = pixels[x];
            else
              pixels[x] = at[x * s.stride];
        }
      }
  }

  KernelMatmuls& matmuls_;
  const matmul::Kernels& k_;
  const bool chains_ = &k_ == matmul::bf16_kernels();
  float* const scratch_;
};

}  // namespace dtrun::worker::planned
