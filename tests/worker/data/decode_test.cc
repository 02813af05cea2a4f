#include "worker/data/images/decode.h"

#include <doctest/doctest.h>
#include <zlib.h>

#include <algorithm>
#include <cstdlib>

#include "tests/support/files.h"
#include "tests/worker/data/idx_files.h"
#include "tests/worker/data/image_files.h"

namespace dtrun::worker::decode_test {
namespace {

using dtrun::test::contains;
using Pixels = std::vector<std::uint8_t>;

PixelImage decoded(const std::string& file, int channels = 3) {
  auto image = decode_image(as_bytes(file), channels);
  REQUIRE_MESSAGE(image.ok(), image.status().message());
  CHECK(image.value().channels == channels);
  CHECK(image.value().pixels.size() ==
        static_cast<std::size_t>(image.value().height) * image.value().width * channels);
  return std::move(image).value();
}

std::string fault_of(const std::string& file) {
  const auto image = decode_image(as_bytes(file), 3);
  if (image.ok()) return "accepted";
  CHECK(image.status().exit_code() == kExitNoInput);
  return image.status().message();
}

TEST_CASE("every kind of PNG becomes the same colours or greys") {
  const std::string rgb("\x0a\x14\x1e\xff\x80\x01", 6);
  const Pixels colours{10, 20, 30, 255, 128, 1}, greys{18, 151};
  CHECK(decoded(png_file(2, {rgb})).pixels == colours);
  CHECK(decoded(png_file(2, {rgb}), 1).pixels == greys);
  CHECK(decoded(png_file(2, {rgb}, {.interlaced = true})).pixels == colours);
  const PngForm with_alpha{.colour_type = PNG_COLOR_TYPE_RGBA};
  CHECK(decoded(png_file(2, {std::string("\x0a\x14\x1e\x00\xff\x80\x01\x7f", 8)}, with_alpha)).pixels ==
        colours);
  const PngForm palette{.colour_type = PNG_COLOR_TYPE_PALETTE,
                        .depth = 8,
                        .palette = {{255, 128, 1}, {10, 20, 30}},
                        .transparency = std::string("\x00\x40", 2)};
  CHECK(decoded(png_file(2, {std::string("\x01\x00", 2)}, palette)).pixels == colours);
  PngForm bits = palette;
  bits.depth = 1;
  CHECK(decoded(png_file(2, {"\x80"}, bits)).pixels == colours);
  // 16 bits: the nearest 8, not the upper ones.
  const PngForm deep{.colour_type = PNG_COLOR_TYPE_RGB, .depth = 16};
  CHECK(decoded(png_file(1, {std::string("\x0a\x0a\x14\x94\x1e\xff", 6)}, deep)).pixels ==
        Pixels{10, 20, 31});
  const PngForm grey{.colour_type = PNG_COLOR_TYPE_GRAY};
  CHECK(decoded(png_file(2, {std::string("\x00\x99", 2)}, grey)).pixels == Pixels{0, 0, 0, 153, 153, 153});
  CHECK(decoded(png_file(2, {std::string("\x00\x99", 2)}, grey), 1).pixels == Pixels{0, 153});
  PngForm grey_bits = grey;
  grey_bits.depth = 2;
  CHECK(decoded(png_file(4, {"\x1b"}, grey_bits), 1).pixels == Pixels{0, 85, 170, 255});
  const PngForm grey_alpha{.colour_type = PNG_COLOR_TYPE_GRAY_ALPHA};
  CHECK(decoded(png_file(1, {std::string("\x99\x10", 2)}, grey_alpha)).pixels == Pixels{153, 153, 153});
}

// The largest difference of a value from the picture that was written.
int worst(const PixelImage& image, const JpegForm& form, int largest_step = 4) {
  int worst = 0;
  for (int y = 0; y < image.height; ++y)
    for (int x = 0; x < image.width; ++x)
      for (int c = 0; c < image.channels; ++c) {
        const int there = image.pixels[static_cast<std::size_t>((y * image.width + x) * image.channels + c)];
        worst = std::max(worst, std::abs(there - largest_step * (form.components == 1 ? x + y : x + y + c)));
      }
  return worst;
}

TEST_CASE("JPEGs of every sampling are the picture, progressive or not, and grey ones are") {
  const auto slope = [](int x, int y, int c) { return 4 * (x + y + c); };
  for (const auto& sampling : {std::pair{1, 1}, {1, 2}, {2, 1}, {2, 2}, {1, 4}}) {
    CAPTURE(sampling.first);
    CAPTURE(sampling.second);
    JpegForm form{.down = sampling.first, .across = sampling.second};
    const PixelImage image = decoded(jpeg_file(33, 21, slope, form));
    CHECK(image.width == 33);
    CHECK(image.height == 21);
    CHECK(worst(image, form) < 14);
    form.progressive = true;
    CHECK(decoded(jpeg_file(33, 21, slope, form)).pixels == image.pixels);
  }
  const JpegForm grey{.in = JCS_GRAYSCALE, .components = 1};
  const PixelImage image = decoded(jpeg_file(33, 21, slope, grey), 1);
  CHECK(worst(image, grey) < 8);
  const PixelImage three = decoded(jpeg_file(33, 21, slope, grey), 3);
  for (std::size_t i = 0; i < image.pixels.size(); ++i) CHECK(three.pixels[3 * i + 1] == image.pixels[i]);
}

TEST_CASE("inks are what is left of white, as Adobe writes them") {
  const JpegForm inks{.in = JCS_CMYK, .components = 4};
  const auto values = [](int c, int m, int y, int k) {
    return [=](int, int, int component) {
      return std::array{c, m, y, k}[static_cast<std::size_t>(component)];
    };
  };
  CHECK(decoded(jpeg_file(8, 8, values(255, 255, 255, 255), inks)).pixels == Pixels(192, 255));
  CHECK(decoded(jpeg_file(8, 8, values(255, 255, 255, 0), inks)).pixels == Pixels(192, 0));
  const Pixels mixed = decoded(jpeg_file(8, 8, values(255, 128, 0, 200), inks)).pixels;
  CHECK(std::abs(mixed[0] - 200) < 3);
  CHECK(std::abs(mixed[1] - 100) < 3);
  CHECK(mixed[2] < 3);
}

TEST_CASE("a file that is cut anywhere is broken, and one of other bytes never ends the process") {
  const std::string png = png_file(20, std::vector<std::string>(20, std::string(60, 'x')));
  for (std::size_t size = 0; size < png.size(); ++size) CHECK(fault_of(png.substr(0, size)) != "accepted");
  CHECK(contains(fault_of(png.substr(0, 40)), "is broken: the file ends too early"));
  for (const bool progressive : {false, true}) {
    const std::string jpeg = jpeg_file(40, 40, waves, {.progressive = progressive});
    for (std::size_t size = 0; size + 8 < jpeg.size(); ++size)
      CHECK_MESSAGE(fault_of(jpeg.substr(0, size)) != "accepted", size, " of ", jpeg.size());
    CHECK_MESSAGE(
        contains(fault_of(jpeg.substr(0, jpeg.size() / 2)), "is broken: Premature end of JPEG file"),
        fault_of(jpeg.substr(0, jpeg.size() / 2)));
    for (std::size_t at = 0; at < jpeg.size(); ++at) {
      std::string other = jpeg;
      other[at] = static_cast<char>(other[at] ^ 0x5a);
      static_cast<void>(decode_image(as_bytes(other), 3));
    }
  }
  CHECK(fault_of("") == "is empty");
  CHECK(fault_of("GIF89a") == "is neither a PNG nor a JPEG, by its first bytes");
}

TEST_CASE("a header that promises more pixels than 2^28 is not believed") {
  const auto of_size = [](std::uint32_t width, std::uint32_t height) {
    std::string png = png_file(1, {"abc"});
    for (int shift = 24, at = 16; shift >= 0; shift -= 8, ++at) {
      png[static_cast<std::size_t>(at)] = static_cast<char>(width >> shift);
      png[static_cast<std::size_t>(at) + 4] = static_cast<char>(height >> shift);
    }
    const auto crc = crc32(0, reinterpret_cast<const Bytef*>(png.data()) + 12, 17);
    for (int shift = 24, at = 29; shift >= 0; shift -= 8, ++at)
      png[static_cast<std::size_t>(at)] = static_cast<char>(crc >> shift);
    return fault_of(png);
  };
  CHECK(of_size(16385, 16384) == "is broken: its header says 16,385 x 16,384 pixels");
  CHECK(contains(of_size(65536, 1), "is broken: Invalid IHDR data"));
  CHECK(of_size(65535, 1) != "accepted");  // but for its data
}

// ---- sizes; what Pillow's resize(BILINEAR) gives, across first

PixelImage picture(int height, int width) {
  PixelImage image{.channels = 3, .height = height, .width = width, .pixels = {}};
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x)
      for (int c = 0; c < 3; ++c)
        image.pixels.push_back(static_cast<std::uint8_t>(x * 37 + y * 91 + c * 50 + x * y));
  return image;
}

TEST_CASE("an image is made smaller and larger as Pillow does it") {
  CHECK(resample(picture(5, 7), {.height = 4, .width = 3}, 4, 3).pixels ==
        Pixels{55, 105, 141, 131, 166, 163, 164, 132, 99, 139, 144, 123, 135, 144, 97,  103, 120, 132,
               97, 101, 113, 104, 139, 154, 129, 116, 95, 120, 170, 179, 151, 118, 108, 80,  103, 139});
  CHECK(resample(picture(9, 4), {.height = 3, .width = 2}, 3, 2).pixels ==
        Pixels{100, 123, 132, 115, 155, 123, 125, 139, 140, 129, 130, 131, 124, 120, 115, 102, 106, 115});
  const Pixels larger = resample(picture(2, 3), {.height = 5, .width = 7}, 5, 7).pixels;
  CHECK(Pixels(larger.begin(), larger.begin() + 24) == Pixels{0,   50,  100, 5,   55,  105, 21,  71,
                                                              121, 37,  87,  137, 53,  103, 153, 69,
                                                              119, 169, 74,  124, 174, 9,   59,  109});
  CHECK(Pixels(larger.end() - 9, larger.end()) == Pixels{145, 195, 136, 162, 212, 42, 167, 217, 11});
  CHECK(resample(picture(11, 13), {.height = 6, .width = 7, .top = 1, .left = 2}, 4, 3).pixels ==
        Pixels{131, 133, 132, 110, 140, 97,  140, 127, 130, 108, 114, 136, 116, 136, 150, 133, 135, 120,
               149, 95,  118, 131, 134, 134, 122, 123, 130, 118, 141, 145, 138, 123, 124, 113, 112, 114});
  const PixelImage large = resample(picture(301, 403), {.height = 224, .width = 299}, 224, 299);
  long sum = 0;
  for (const std::uint8_t value : large.pixels) sum += value;
  CHECK(sum == 25662565);
  CHECK(Pixels(large.pixels.begin() + (100 * 299 + 150) * 3, large.pixels.begin() + (100 * 299 + 151) * 3) ==
        Pixels{129, 179, 149});
  CHECK(resample(picture(6, 5), {.height = 6, .width = 5}, 6, 5).pixels == picture(6, 5).pixels);
}

TEST_CASE("the middle is where torchvision's CenterCrop has it") {
  const auto part_of = [](int height, int width, int resize, int part_height, int part_width) {
    const ResizedPart part = resized_part(height, width, resize, part_height, part_width);
    return std::vector{part.height, part.width, part.top, part.left};
  };
  CHECK(part_of(480, 640, 256, 224, 224) == std::vector{256, 341, 16, 58});  // half of 117: 58.5 is even's
  CHECK(part_of(641, 333, 256, 224, 224) == std::vector{492, 256, 134, 16});
  CHECK(part_of(257, 300, 257, 224, 224) == std::vector{257, 300, 16, 38});
  CHECK(part_of(300, 259, 259, 224, 224) == std::vector{300, 259, 38, 18});  // 17.5
  CHECK(part_of(100, 100, 0, 32, 32) == std::vector{32, 32, 0, 0});
  CHECK(part_of(100, 300, 0, 32, 32) == std::vector{32, 96, 0, 32});
  CHECK(part_of(100, 300, 0, 20, 80) == std::vector{26, 80, 3, 0});
  CHECK(part_of(1, 60000, 0, 32, 32) == std::vector{32, 1920000, 0, 959984});
}

}  // namespace
}  // namespace dtrun::worker::decode_test
