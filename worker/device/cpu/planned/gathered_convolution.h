// A convolution's three matmuls, for some samples at a time, on columns that are gathered from images with
// zeros around them (matmul::Gathered): where these lie, and what of them a step of the sum needs. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <variant>
#include <vector>

#include "worker/device/cpu/matmul/kernels.h"
#include "worker/device/cpu/matmul/matmul.h"
#include "worker/model/plan.h"
#include "worker/model/program.h"
#include "worker/schedule/places.h"
#include "worker/schedule/schedule.h"

namespace dtrun::worker::planned {

// What a load may read behind the last value.
inline constexpr std::size_t kSlack = 16;

// Samples at a time: as many as make a matmul of small images worth its panels, and stay in the cache.
inline std::int64_t samples_together(const schedule::ImageShape& s, std::int64_t positions) {
  return std::clamp<std::int64_t>(512 / positions, 1, s.samples);
}

// Rows of a matmul's result whose distance is a multiple of so many floats share few sets of the cache, and a
// tile's push each other out of it. row_stride(): an odd number of lines.
inline constexpr std::int64_t kSameSet = 1024, kLine = 16;
inline std::int64_t row_stride(std::int64_t columns) { return ((columns + kLine - 1) / kLine | 1) * kLine; }

using Table = std::vector<std::int32_t>;

// out [out_channels, positions] = weight [out_channels, patch] by the columns' [patch, positions]. With a
// stride the images lie in phases, so that a window's neighbours are next to each other.
struct ForwardColumns {
  explicit ForwardColumns(const schedule::ImageShape& s) {
    const int rows = s.out_height() + (s.kernel - 1) / s.stride,
              width = s.out_width() + (s.kernel - 1) / s.stride;
    const int phases = std::min(s.kernel, s.stride);
    spread = {.planes = s.in_channels,
              .height = s.height,
              .width = s.width,
              .stride = s.stride,
              .phases = phases,
              .padding = s.padding,
              .out_height = rows,
              .out_width = width};
    image = std::size_t(s.in_channels) * phases * phases * rows * width;
    together = samples_together(s, std::int64_t{s.out_height()} * s.out_width());
    for (int c = 0; c < s.in_channels; ++c)
      for (int ky = 0; ky < s.kernel; ++ky)
        for (int kx = 0; kx < s.kernel; ++kx) {
          const int plane = (c * phases + ky % s.stride) * phases + kx % s.stride;
          steps.push_back((plane * rows + ky / s.stride) * width + kx / s.stride);
        }
    for (int n = 0; n < together; ++n)
      for (int y = 0; y < s.out_height(); ++y) runs.push_back(static_cast<int>(n * image) + y * width);
  }
  std::size_t floats(const schedule::ImageShape& s) const {
    const std::int64_t positions = std::int64_t{s.out_height()} * s.out_width();
    return together * image + kSlack + (together > 1 ? s.out_channels * row_stride(together * positions) : 0);
  }

  matmul::Spread spread;
  std::size_t image;  // floats of a sample's
  std::int64_t together;
  Table steps, runs;  // of each value of a patch; of each row of a sample's output
};

// weight gradient [out_channels, patch] += out gradient [out_channels, positions] by the columns' [positions,
// patch]: the images' channels lie next to each other, and so those of a row of a window.
struct WeightGradientColumns {
  explicit WeightGradientColumns(const schedule::ImageShape& s) {
    const int width = std::max(s.width + s.padding, (s.out_width() - 1) * s.stride + s.kernel);
    const int height = std::max(s.height + s.padding, (s.out_height() - 1) * s.stride + s.kernel);
    image = std::size_t(s.in_channels) * height * width;
    together = samples_together(s, std::int64_t{s.out_height()} * s.out_width());
    for (int y = 0; y < s.height; ++y)
      for (int x = 0; x < s.width; ++x)
        places.push_back(((y + s.padding) * width + x + s.padding) * s.in_channels);
    for (int n = 0; n < together; ++n)
      for (int y = 0; y < s.out_height(); ++y)
        for (int x = 0; x < s.out_width(); ++x)
          steps.push_back(static_cast<int>(n * image) + (y * width + x) * s.stride * s.in_channels);
    for (int ky = 0; ky < s.kernel; ++ky) runs.push_back(ky * width * s.in_channels);
  }
  std::size_t floats(const schedule::ImageShape& s) const {
    const std::int64_t positions = std::int64_t{s.out_height()} * s.out_width();
    return together * image + kSlack + std::size_t(s.out_channels) * s.in_channels * s.kernel * s.kernel +
           s.out_channels * row_stride(together * positions);
  }

  std::size_t image;
  std::int64_t together;
  Table places;       // of each pixel of an image
  Table steps, runs;  // of each position; of each row of a window
};

// in gradient [in_channels, pixels] += weight [out_channels, in_channels]^T by the columns' [out_channels,
// pixels], the out gradient moved, for each tap of the weight that reaches the pixels, in their order. Those
// of the pixels (stride * y + down, stride * x + right) are a phase: the same taps reach them.
struct InGradientColumns {
  struct PixelPhase {
    int down, right, rows, columns;
    std::vector<int> taps;
    Table steps, runs;  // of each out channel, for tap after tap; of each row of a sample's pixels
  };

  explicit InGradientColumns(const schedule::ImageShape& s) {
    // Moved by (down + padding - tap) / stride, to the front by `before` at most.
    const int before = (s.kernel - 1) / s.stride;
    const auto length = [&](int in, int out) {
      return before + std::max(out, (in - 1 + s.padding) / s.stride + 1);
    };
    const int height = length(s.height, s.out_height()), width = length(s.width, s.out_width());
    spread = {.planes = s.out_channels,
              .height = s.out_height(),
              .width = s.out_width(),
              .stride = 1,
              .phases = 1,
              .padding = before,
              .out_height = height,
              .out_width = width};
    image = std::size_t(s.out_channels) * height * width;
    const int most_rows = (s.height + s.stride - 1) / s.stride,
              most_columns = (s.width + s.stride - 1) / s.stride;
    most = std::int64_t{most_rows} * most_columns;
    together = samples_together(s, most);
    for (int down = 0; down < std::min(s.stride, s.height); ++down)
      for (int right = 0; right < std::min(s.stride, s.width); ++right) {
        PixelPhase phase{.down = down,
                         .right = right,
                         .rows = (s.height - down + s.stride - 1) / s.stride,
                         .columns = (s.width - right + s.stride - 1) / s.stride,
                         .taps = {},
                         .steps = {},
                         .runs = {}};
        for (int tap = 0; tap < s.kernel * s.kernel; ++tap) {
          const int y = down + s.padding - tap / s.kernel, x = right + s.padding - tap % s.kernel;
          if (y % s.stride != 0 || x % s.stride != 0) continue;
          phase.taps.push_back(tap);
          for (int o = 0; o < s.out_channels; ++o)
            phase.steps.push_back((o * height + y / s.stride + before) * width + x / s.stride + before);
        }
        for (int n = 0; n < together; ++n)
          for (int y = 0; y < phase.rows; ++y) phase.runs.push_back(static_cast<int>(n * image) + y * width);
        if (!phase.taps.empty()) phases.push_back(std::move(phase));
      }
  }
  // Whether the sum of a tap has several blocks, which are added to each other before they are to the
  // others'.
  static bool apart(const schedule::ImageShape& s) { return s.out_channels > matmul::kBlock; }
  std::size_t floats(const schedule::ImageShape& s) const {
    const std::size_t weights = std::size_t(s.out_channels) * s.in_channels * s.kernel * s.kernel;
    return together * image + kSlack + weights + 2 * s.in_channels * row_stride(together * most);
  }

  matmul::Spread spread;
  std::size_t image;
  std::int64_t together;
  std::int64_t most;  // pixels of a phase
  std::vector<PixelPhase> phases;
};

// The memory that all three take at most, in floats.
inline std::size_t gathered_floats(const schedule::ImageShape& s) {
  return std::max(
      {ForwardColumns(s).floats(s), WeightGradientColumns(s).floats(s), InGradientColumns(s).floats(s)});
}

// Floats that a lane works in beside its arena and scores, at most: what its convolutions take, of which
// those by AMX take Plan::columns.
inline std::size_t lane_columns(const Program& program, const Plan& plan, int capacity) {
  if (plan.group > 1) return plan.columns;
  const schedule::Places places(program, plan, static_cast<std::size_t>(capacity), false);
  std::size_t floats = program.bf16 ? plan.columns : 0;
  for (const Node& node : program.nodes)
    if (const auto* const convolution = std::get_if<Conv2d>(&node.op))
      floats = std::max(floats, gathered_floats(places.image(*convolution, node)));
  return floats;
}

}  // namespace dtrun::worker::planned
