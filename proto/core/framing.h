// Length-prefixed messages over a byte stream: a 4-byte little-endian length, then that many bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "proto/core/status.h"

namespace dtrun {

// A longer frame is a protocol error: nothing on the control socket comes near it.
inline constexpr std::size_t kMaxFrame = 16u << 20;

// Appends the frame of `payload` to `out`. REQUIRES: payload.size() <= kMaxFrame.
void append_frame(std::string_view payload, std::string* out);

// Cuts frames out of bytes as they come. Not thread-safe.
class FrameReader {
 public:
  void push(std::string_view bytes) { buffer_.append(bytes); }

  // The next whole payload, nothing if more bytes are needed, or an error (EX_SOFTWARE) when the length is
  // over kMaxFrame; after an error the stream is unusable and every call returns it again.
  Result<std::optional<std::string>> next();

  // Bytes that the next frame lacks: of its length first, then of its payload. REQUIRES: next() found none.
  std::size_t missing() const;

  // Bytes of an unfinished frame.
  std::size_t pending() const { return buffer_.size() - consumed_; }

 private:
  std::size_t payload_size() const;  // REQUIRES: pending() >= kLength

  static constexpr std::size_t kLength = 4;

  std::string buffer_;
  std::size_t consumed_ = 0;
};

}  // namespace dtrun
