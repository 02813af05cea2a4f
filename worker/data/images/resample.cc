#include "worker/data/images/resample.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace dtrun::worker {
namespace {

constexpr int kPrecision = 32 - 8 - 2;  // bits behind the point of a weight, as Pillow has them

// The pixels that a pixel of the result is made of, along one side.
struct Taps {
  int first = 0;
  std::vector<int> weights;
};

// A triangle over one pixel of the larger of both images. Of the result's pixels `begin` to begin + count
// - 1.
std::vector<Taps> taps_of(int from, int to, int begin, int count) {
  const double scale = static_cast<double>(from) / to, width = std::max(scale, 1.0);
  std::vector<Taps> all;
  for (int i = begin; i < begin + count; ++i) {
    const double center = (i + 0.5) * scale;
    Taps taps{.first = std::max(static_cast<int>(std::floor(center - width + 0.5)), 0), .weights = {}};
    const int end = std::min(static_cast<int>(std::floor(center + width + 0.5)), from);
    std::vector<double> shares;
    double sum = 0;
    for (int at = taps.first; at < end; ++at) {
      const double distance = std::fabs((at - center + 0.5) * (1.0 / width));
      shares.push_back(distance < 1.0 ? 1.0 - distance : 0.0);
      sum += shares.back();
    }
    for (const double share : shares)
      taps.weights.push_back(
          static_cast<int>(std::floor(0.5 + (sum == 0 ? share : share / sum) * (1 << kPrecision))));
    all.push_back(std::move(taps));
  }
  return all;
}

// `step`: bytes from one of its pixels to the next.
std::uint8_t mixed(const Taps& taps, const std::uint8_t* first, std::size_t step) {
  int sum = 1 << (kPrecision - 1);
  for (const int weight : taps.weights) sum += *first * weight, first += step;
  return static_cast<std::uint8_t>(std::clamp(sum >> kPrecision, 0, 255));
}

// Half of it as Python's round() has it: .5 goes to the even number.
int rounded_half(int number) { return number / 2 + (number % 2 != 0 && number / 2 % 2 != 0 ? 1 : 0); }

}  // namespace

ResizedPart resized_part(int height, int width, int resize, int part_height, int part_width) {
  const auto scaled = [](int side, int to, int of) {
    return static_cast<int>(static_cast<std::int64_t>(side) * to / of);
  };
  ResizedPart part;
  const bool by_height = resize > 0 ? height <= width
                                    : static_cast<std::int64_t>(height) * part_width <=
                                          static_cast<std::int64_t>(width) * part_height;
  if (by_height) {
    part.height = resize > 0 ? resize : part_height;
    part.width = std::max(scaled(width, part.height, height), part_width);
  } else {
    part.width = resize > 0 ? resize : part_width;
    part.height = std::max(scaled(height, part.width, width), part_height);
  }
  part.top = rounded_half(part.height - part_height);
  part.left = rounded_half(part.width - part_width);
  return part;
}

PixelImage resample(const PixelImage& image, const ResizedPart& to, int part_height, int part_width) {
  const std::vector<Taps> across = taps_of(image.width, to.width, to.left, part_width);
  const std::vector<Taps> down = taps_of(image.height, to.height, to.top, part_height);
  const auto channels = static_cast<std::size_t>(image.channels);
  const std::size_t row = channels * static_cast<std::size_t>(part_width);
  // First across, of the rows that are needed; then down.
  const int begin = down.front().first;
  const int end = down.back().first + static_cast<int>(down.back().weights.size());
  std::vector<std::uint8_t> narrow;
  narrow.reserve(row * static_cast<std::size_t>(end - begin));
  for (int y = begin; y < end; ++y) {
    const std::uint8_t* const line =
        image.pixels.data() + channels * static_cast<std::size_t>(y) * static_cast<std::size_t>(image.width);
    for (const Taps& taps : across)
      for (std::size_t c = 0; c < channels; ++c)
        narrow.push_back(mixed(taps, line + channels * static_cast<std::size_t>(taps.first) + c, channels));
  }
  PixelImage part{.channels = image.channels, .height = part_height, .width = part_width, .pixels = {}};
  part.pixels.reserve(row * static_cast<std::size_t>(part_height));
  for (const Taps& taps : down)
    for (std::size_t x = 0; x < row; ++x)
      part.pixels.push_back(
          mixed(taps, narrow.data() + row * static_cast<std::size_t>(taps.first - begin) + x, row));
  return part;
}

}  // namespace dtrun::worker
