// Images of bytes, made larger or smaller in integers, so that the bits are the same on every processor: as
// by Pillow's Image.resize(BILINEAR), which torchvision's Resize calls, always across first. Pillow 13 begins
// with the cheaper side, which rounds some values otherwise by one.
#pragma once

#include <cstdint>
#include <vector>

namespace dtrun::worker {

struct PixelImage {
  int channels = 0, height = 0, width = 0;
  std::vector<std::uint8_t> pixels;  // [height, width, channels]
};

// A size, and the place of a part in it.
struct ResizedPart {
  int height = 0, width = 0;  // of the whole resized image
  int top = 0, left = 0;      // of the part
};

// As torchvision's Resize(resize) and CenterCrop(size) do: the shorter side becomes `resize`, and the part of
// [part_height, part_width] is in the middle. 0: both sides just cover the part. REQUIRES: resize is 0, or at
// least both sides of the part.
ResizedPart resized_part(int height, int width, int resize, int part_height, int part_width);

// The part of [part_height, part_width] of the resized image.
PixelImage resample(const PixelImage& image, const ResizedPart& to, int part_height, int part_width);

}  // namespace dtrun::worker
