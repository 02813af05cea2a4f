// Length-prefixed messages over a byte stream: a 4-byte little-endian length, then that many bytes. Where a
// stream may also have lines, it has these if it begins with a brace and text, which is no frame's length.
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

// Cuts frames, or lines, out of bytes as they come. Not thread-safe.
class FrameReader {
 public:
  enum class Takes { kFrames, kLinesToo };
  explicit FrameReader(Takes takes = Takes::kFrames) : takes_(takes) {}

  void push(std::string_view bytes);

  // The form of the stream; nothing while its first bytes leave it open.
  enum class Form { kFrames, kLines };
  std::optional<Form> form() const { return form_; }

  // The next whole payload, without its end of line, nothing if more bytes are needed, or an error
  // (EX_SOFTWARE) when the length is over kMaxFrame; after an error the stream is unusable and every call
  // returns it again.
  Result<std::optional<std::string>> next();

  // Bytes that the next frame lacks: of its length first, then of its payload. REQUIRES: next() found none,
  // and the stream has frames.
  std::size_t missing() const;

  // Bytes of an unfinished frame.
  std::size_t pending() const { return buffer_.size() - consumed_; }

 private:
  std::optional<Form> form_of_begin() const;
  std::size_t payload_size() const;  // REQUIRES: pending() >= kLength
  Result<std::optional<std::string>> next_line();
  std::string take(std::size_t before, std::size_t size, std::size_t after);

  static constexpr std::size_t kLength = 4;

  Takes takes_;
  std::optional<Form> form_;
  std::string buffer_;
  std::size_t consumed_ = 0;
  std::size_t searched_ = 0;  // bytes of an unfinished line that have no end of line
};

}  // namespace dtrun
