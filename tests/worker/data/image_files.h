// PNGs and JPEGs made by the tests themselves.
#pragma once

#include <doctest/doctest.h>
#include <jpeglib.h>
#include <png.h>

#include <cstdint>
#include <cstdio>  // jpeglib.h needs it
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace dtrun::worker {

struct PngForm {
  int colour_type = PNG_COLOR_TYPE_RGB, depth = 8;
  bool interlaced = false;
  std::vector<png_color> palette = {};
  std::string transparency = {};  // tRNS of a palette
};

// `rows`: as they lie in the file before compression.
inline std::string png_file(int width, const std::vector<std::string>& rows, const PngForm& form = {}) {
  std::string out;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  png_set_write_fn(
      png, &out,
      [](png_structp to, png_bytep bytes, std::size_t size) {
        static_cast<std::string*>(png_get_io_ptr(to))->append(reinterpret_cast<char*>(bytes), size);
      },
      [](png_structp) {});
  png_set_IHDR(png, info, static_cast<png_uint_32>(width), static_cast<png_uint_32>(rows.size()), form.depth,
               form.colour_type, form.interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  if (!form.palette.empty())
    png_set_PLTE(png, info, form.palette.data(), static_cast<int>(form.palette.size()));
  if (!form.transparency.empty())
    png_set_tRNS(png, info, reinterpret_cast<png_const_bytep>(form.transparency.data()),
                 static_cast<int>(form.transparency.size()), nullptr);
  std::vector<png_bytep> pointers;
  for (const std::string& row : rows)
    pointers.push_back(reinterpret_cast<png_bytep>(const_cast<char*>(row.data())));
  png_set_rows(png, info, pointers.data());
  png_write_png(png, info, PNG_TRANSFORM_IDENTITY, nullptr);
  png_destroy_write_struct(&png, &info);
  return out;
}

struct JpegForm {
  J_COLOR_SPACE in = JCS_RGB;
  int components = 3;
  int down = 2, across = 2;  // how much coarser the colours are
  bool progressive = false;
};

// A picture without edges or noise: each component of (x, y).
inline std::string jpeg_file(int width, int height,
                             const std::function<int(int x, int y, int component)>& value,
                             const JpegForm& form = {}) {
  jpeg_compress_struct jpeg{};
  jpeg_error_mgr errors{};
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_compress(&jpeg);
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&jpeg, &memory, &size);
  jpeg.image_width = static_cast<JDIMENSION>(width), jpeg.image_height = static_cast<JDIMENSION>(height);
  jpeg.input_components = form.components, jpeg.in_color_space = form.in;
  jpeg_set_defaults(&jpeg);
  jpeg_set_quality(&jpeg, 90, TRUE);
  jpeg.comp_info[0].v_samp_factor = form.components == 3 ? form.down : 1;
  jpeg.comp_info[0].h_samp_factor = form.components == 3 ? form.across : 1;
  if (form.progressive) jpeg_simple_progression(&jpeg);
  jpeg_start_compress(&jpeg, TRUE);
  for (int y = 0; y < height; ++y) {
    std::string row;
    for (int x = 0; x < width; ++x)
      for (int c = 0; c < form.components; ++c) row += static_cast<char>(value(x, y, c));
    auto* pointer = reinterpret_cast<JSAMPROW>(row.data());
    jpeg_write_scanlines(&jpeg, &pointer, 1);
  }
  jpeg_finish_compress(&jpeg);
  jpeg_destroy_compress(&jpeg);
  std::string out(reinterpret_cast<char*>(memory), size);
  std::free(memory);
  return out;
}

// Bright and dark in all directions.
inline int waves(int x, int y, int component) {
  return (x * (7 + component) + y * (5 - component) + x * y / 3 + 60 * component) % 256;
}

}  // namespace dtrun::worker
