// gzip decompression of a file that lies in memory, in pieces of the caller's choice. Several members in a
// row (bgzip, cat a.gz b.gz) are one content, as in RFC 1952.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <span>
#include <string>

namespace dtrun::worker {

bool is_gzip(std::span<const std::uint8_t> file);

// No gzip data is smaller than its content divided by this (deflate's limit is 1032).
inline constexpr std::uint64_t kMaxGzipRatio = 1040;

// Not thread-safe. `file` must outlive it.
class GzipReader {
 public:
  explicit GzipReader(std::span<const std::uint8_t> file);
  ~GzipReader();
  GzipReader(const GzipReader&) = delete;
  GzipReader& operator=(const GzipReader&) = delete;

  // Fills `out` as far as the content goes; returns the number of bytes written. Less than out.size() means
  // that the content ended (ended() is true), that the file ended before it (truncated), or that fault()
  // tells of bad data.
  std::size_t read(std::span<std::uint8_t> out);

  bool ended() const { return ended_; }  // and the checksums agreed
  const std::string& fault() const { return fault_; }
  std::size_t unread() const { return rest_.size() + stream_.avail_in; }  // bytes of `file` not looked at

 private:
  void refill();
  bool begin_next_member();  // false: none follows

  z_stream stream_{};
  std::span<const std::uint8_t> rest_;  // not given to zlib yet, whose counters have 32 bits
  bool ended_ = false;
  std::string fault_;
};

}  // namespace dtrun::worker
