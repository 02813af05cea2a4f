#include "worker/data/images/decode.h"

#include <jerror.h>
#include <jpeglib.h>
#include <png.h>

#include <algorithm>
#include <csetjmp>
#include <cstdio>  // jpeglib.h needs it
#include <cstring>
#include <string>
#include <utility>

#include "proto/core/text.h"

namespace dtrun::worker {
namespace {

constexpr std::uint32_t kLongestSide = 65535;
constexpr std::uint64_t kMostPixels = std::uint64_t{1} << 28;  // 768 MiB of three channels

Status broken(const std::string& what) { return Status(kExitNoInput, "is broken: " + what); }

std::string fault_of_size(std::uint64_t height, std::uint64_t width) {
  if (height * width <= kMostPixels) return "";
  return "its header says " + with_thousands(width) + " x " + with_thousands(height) + " pixels";
}

// What a library's callbacks see. Both libraries leave a call by longjmp() where they cannot go on, so no
// function between has an object with a destructor.
struct Decoding {
  Bytes rest;  // of a PNG
  std::string fault;
  std::jmp_buf give_up;
  PixelImage image;
  std::vector<std::uint8_t*> rows;

  void make_room(int channels, std::uint32_t height, std::uint32_t width) {
    image.channels = channels;
    image.height = static_cast<int>(height), image.width = static_cast<int>(width);
    const std::size_t row = static_cast<std::size_t>(channels) * width;
    image.pixels.resize(row * height);
    for (std::uint32_t y = 0; y < height; ++y) rows.push_back(image.pixels.data() + y * row);
  }
};

// ---- PNG

void take_bytes(png_structp png, png_bytep to, std::size_t size) {
  auto& decoding = *static_cast<Decoding*>(png_get_io_ptr(png));
  if (decoding.rest.size() < size) png_error(png, "the file ends too early");
  std::memcpy(to, decoding.rest.data(), size);
  decoding.rest = decoding.rest.subspan(size);
}

void fail_png(png_structp png, png_const_charp what) {
  auto& decoding = *static_cast<Decoding*>(png_get_error_ptr(png));
  decoding.fault = what;
  std::longjmp(decoding.give_up, 1);
}

void read_png(png_structp png, png_infop info, Decoding& decoding) {
  if (setjmp(decoding.give_up) != 0) return;
  png_set_user_limits(png, kLongestSide, kLongestSide);
  png_set_read_fn(png, &decoding, take_bytes);
  png_read_info(png, info);
  decoding.fault = fault_of_size(png_get_image_height(png, info), png_get_image_width(png, info));
  if (!decoding.fault.empty()) return;
  png_set_expand(png);  // palettes, and grey of less than 8 bits
  png_set_scale_16(png);
  png_set_strip_alpha(png);
  png_set_interlace_handling(png);
  png_read_update_info(png, info);
  decoding.make_room(png_get_channels(png, info), png_get_image_height(png, info),
                     png_get_image_width(png, info));
  png_read_image(png, decoding.rows.data());
  png_read_end(png, nullptr);
}

void decode_png(Bytes file, Decoding& decoding) {
  decoding.rest = file;
  png_structp png =
      png_create_read_struct(PNG_LIBPNG_VER_STRING, &decoding, fail_png, [](png_structp, png_const_charp) {});
  png_infop info = png != nullptr ? png_create_info_struct(png) : nullptr;
  if (info != nullptr)
    read_png(png, info, decoding);
  else
    decoding.fault = "libpng cannot start: no memory";
  png_destroy_read_struct(&png, &info, nullptr);
}

// ---- JPEG

struct JpegErrors {
  jpeg_error_mgr base;  // first: the library knows this alone
  Decoding* decoding;

  static JpegErrors& of(j_common_ptr jpeg) { return *reinterpret_cast<JpegErrors*>(jpeg->err); }
  static std::string text(j_common_ptr jpeg) {
    char text[JMSG_LENGTH_MAX];
    jpeg->err->format_message(jpeg, text);
    return text;
  }
};

void fail_jpeg(j_common_ptr jpeg) {
  Decoding& decoding = *JpegErrors::of(jpeg).decoding;
  decoding.fault = JpegErrors::text(jpeg);
  std::longjmp(decoding.give_up, 1);
}

// What the library goes on after, with pixels that it makes up.
void note_jpeg(j_common_ptr jpeg, int level) {
  Decoding& decoding = *JpegErrors::of(jpeg).decoding;
  const int code = jpeg->err->msg_code;
  const bool harmless = code == JWRN_EXTRANEOUS_DATA || code == JWRN_ADOBE_XFORM || code == JWRN_JFIF_MAJOR;
  if (level < 0 && !harmless && decoding.fault.empty()) decoding.fault = JpegErrors::text(jpeg);
}

J_COLOR_SPACE colours_of(J_COLOR_SPACE in_file) {
  switch (in_file) {
    case JCS_GRAYSCALE:
      return JCS_GRAYSCALE;
    case JCS_CMYK:
    case JCS_YCCK:
      return JCS_CMYK;
    default:
      return JCS_RGB;
  }
}

void read_jpeg(jpeg_decompress_struct& jpeg, Bytes file, Decoding& decoding) {
  if (setjmp(decoding.give_up) != 0) return;
  jpeg_create_decompress(&jpeg);
  jpeg_mem_src(&jpeg, file.data(), file.size());
  jpeg_read_header(&jpeg, TRUE);
  decoding.fault = fault_of_size(jpeg.image_height, jpeg.image_width);
  if (!decoding.fault.empty()) return;
  jpeg.out_color_space = colours_of(jpeg.jpeg_color_space);
  jpeg.dct_method = JDCT_ISLOW;
  jpeg.do_fancy_upsampling = TRUE;
  jpeg.do_block_smoothing = FALSE;
  jpeg_start_decompress(&jpeg);
  decoding.make_room(jpeg.output_components, jpeg.output_height, jpeg.output_width);
  while (jpeg.output_scanline < jpeg.output_height)
    jpeg_read_scanlines(&jpeg, decoding.rows.data() + jpeg.output_scanline,
                        jpeg.output_height - jpeg.output_scanline);
}

void decode_jpeg(Bytes file, Decoding& decoding) {
  jpeg_decompress_struct jpeg{};
  JpegErrors errors{.base = {}, .decoding = &decoding};
  jpeg.err = jpeg_std_error(&errors.base);
  errors.base.error_exit = fail_jpeg;
  errors.base.emit_message = note_jpeg;
  read_jpeg(jpeg, file, decoding);
  jpeg_destroy_decompress(&jpeg);
}

// ---- colours

int product_of_shares(int a, int b) {  // of 255
  const int product = a * b + 128;
  return ((product >> 8) + product) >> 8;
}

// Adobe's files have what is left of 255 of each ink.
void cmyk_to_rgb(PixelImage& image) {
  std::uint8_t* to = image.pixels.data();
  for (const std::uint8_t *from = to, *end = to + image.pixels.size(); from != end; from += 4)
    for (int c = 0; c < 3; ++c)
      *to++ = static_cast<std::uint8_t>(from[3] - product_of_shares(255 - from[c], from[3]));
  image.channels = 3;
  image.pixels.resize(image.pixels.size() / 4 * 3);
}

void to_grey(PixelImage& image) {
  std::uint8_t* to = image.pixels.data();
  for (const std::uint8_t *from = to, *end = to + image.pixels.size(); from != end; from += 3)
    *to++ = static_cast<std::uint8_t>((from[0] * 19595 + from[1] * 38470 + from[2] * 7471 + 0x8000) >> 16);
  image.channels = 1;
  image.pixels.resize(image.pixels.size() / 3);
}

void to_colours(PixelImage& image) {
  std::vector<std::uint8_t> pixels;
  pixels.reserve(3 * image.pixels.size());
  for (const std::uint8_t grey : image.pixels) pixels.insert(pixels.end(), 3, grey);
  image.channels = 3;
  image.pixels = std::move(pixels);
}

}  // namespace

bool is_png(Bytes beginning) {
  constexpr std::uint8_t kSignature[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
  return beginning.size() >= sizeof kSignature &&
         std::ranges::equal(beginning.first(sizeof kSignature), kSignature);
}

bool is_jpeg(Bytes beginning) {
  return beginning.size() >= 3 && beginning[0] == 0xff && beginning[1] == 0xd8 && beginning[2] == 0xff;
}

Result<PixelImage> decode_image(Bytes file, int channels) {
  Decoding decoding;
  if (is_png(file))
    decode_png(file, decoding);
  else if (is_jpeg(file))
    decode_jpeg(file, decoding);
  else
    return Status(kExitNoInput,
                  file.empty() ? "is empty" : "is neither a PNG nor a JPEG, by its first bytes");
  if (!decoding.fault.empty()) return broken(decoding.fault);
  PixelImage& image = decoding.image;
  if (image.channels == 4) cmyk_to_rgb(image);
  if (image.channels == 3 && channels == 1) to_grey(image);
  if (image.channels == 1 && channels == 3) to_colours(image);
  return std::move(image);
}

}  // namespace dtrun::worker
