// gzip decompression of a file that lies in memory, in pieces of the caller's choice. As RFC 1952 says, the
// content of several members in a row (bgzip, cat a.gz b.gz) is one.
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

  // Fills `out` as far as the content goes; the number of bytes written. Less than out.size() means that the
  // content ended (ended() is true), that the file did (truncated), or that fault() says what is wrong.
  std::size_t read(std::span<std::uint8_t> out);

  bool ended() const { return ended_; }  // the checksums have been compared then
  const std::string& fault() const { return fault_; }
  std::size_t unread() const { return rest_.size() + stream_.avail_in; }  // bytes of `file` not looked at

 private:
  void refill();
  bool begin_next_member();  // false: none follows

  z_stream stream_{};
  std::span<const std::uint8_t> rest_;  // not yet given to zlib, whose counters have 32 bits
  bool ended_ = false;
  std::string fault_;
};

}  // namespace dtrun::worker
