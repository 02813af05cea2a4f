// IDX and gzip files made by the tests themselves.
#pragma once

#include <doctest/doctest.h>
#include <zlib.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace dtrun::worker {

inline std::span<const std::uint8_t> as_bytes(const std::string& text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

inline std::string idx_file(const std::vector<std::uint32_t>& dims, const std::string& values) {
  std::string file{'\0', '\0', '\x08', static_cast<char>(dims.size())};
  for (std::uint32_t dim : dims) {
    for (int shift = 24; shift >= 0; shift -= 8) file += static_cast<char>(dim >> shift);
  }
  return file + values;
}

inline std::string gzip(const std::string& content) {
  z_stream stream{};
  REQUIRE(deflateInit2(&stream, 9, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string out(deflateBound(&stream, content.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

}  // namespace dtrun::worker
