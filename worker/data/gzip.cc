#include "worker/data/gzip.h"

#include <algorithm>

#include "worker/base/pulse.h"

namespace dtrun::worker {

namespace {
constexpr int kGzipFormat = 16 + MAX_WBITS;  // zlib: a gzip header and trailer are expected
constexpr std::size_t kPiece = 16u << 20;    // between two signs of life
}  // namespace

bool is_gzip(std::span<const std::uint8_t> file) {
  return file.size() >= 2 && file[0] == 0x1f && file[1] == 0x8b;
}

GzipReader::GzipReader(std::span<const std::uint8_t> file) : rest_(file) {
  if (inflateInit2(&stream_, kGzipFormat) != Z_OK) fault_ = "zlib cannot start: no memory";
}

GzipReader::~GzipReader() { inflateEnd(&stream_); }

void GzipReader::refill() {
  if (stream_.avail_in > 0) return;
  const std::size_t size = std::min(rest_.size(), kPiece);
  stream_.next_in = const_cast<Bytef*>(rest_.data());  // zlib only reads it
  stream_.avail_in = static_cast<uInt>(size);
  rest_ = rest_.subspan(size);
}

bool GzipReader::begin_next_member() {
  const std::span<const std::uint8_t> left(stream_.next_in, unread());  // all of it lies behind next_in
  return is_gzip(left) && inflateReset(&stream_) == Z_OK;
}

std::size_t GzipReader::read(std::span<std::uint8_t> out) {
  std::size_t done = 0;
  std::uint8_t nowhere = 0;  // for an empty `out`: lets zlib reach the trailer
  while (fault_.empty() && !ended_) {
    refill();
    const std::size_t room = std::min(out.size() - done, kPiece);
    stream_.next_out = room > 0 ? out.data() + done : &nowhere;
    stream_.avail_out = static_cast<uInt>(room);
    const int result = inflate(&stream_, Z_NO_FLUSH);
    done += room - stream_.avail_out;
    Pulse::beat();
    if (result == Z_STREAM_END) {
      ended_ = !begin_next_member();
    } else if (result == Z_BUF_ERROR || (result == Z_OK && done == out.size())) {
      break;  // no more input, or no more room
    } else if (result != Z_OK) {
      fault_ = stream_.msg ? stream_.msg : "zlib error " + std::to_string(result);
    }
  }
  return done;
}

}  // namespace dtrun::worker
