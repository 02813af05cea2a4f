#include "proto/core/framing.h"

namespace dtrun {

void append_frame(std::string_view payload, std::string* out) {
  const auto size = static_cast<std::uint32_t>(payload.size());
  for (int shift = 0; shift < 32; shift += 8) out->push_back(static_cast<char>(size >> shift));
  out->append(payload);
}

void FrameReader::push(std::string_view bytes) {
  buffer_.append(bytes);
  if (!form_) form_ = form_of_begin();
}

// A brace may also be the begin of a length. Any text's first four bytes are a length over kMaxFrame.
std::optional<FrameReader::Form> FrameReader::form_of_begin() const {
  if (buffer_.empty()) return std::nullopt;
  if (takes_ == Takes::kFrames || buffer_.front() != '{') return Form::kFrames;
  if (buffer_.size() < kLength) return std::nullopt;
  return payload_size() <= kMaxFrame ? Form::kFrames : Form::kLines;
}

std::size_t FrameReader::payload_size() const {
  std::size_t size = 0;
  for (std::size_t i = 0; i < kLength; ++i)
    size |= std::size_t{static_cast<unsigned char>(buffer_[consumed_ + i])} << (8 * i);
  return size;
}

std::size_t FrameReader::missing() const {
  return kLength + (pending() < kLength ? 0 : payload_size()) - pending();
}

Result<std::optional<std::string>> FrameReader::next_line() {
  const std::size_t end = buffer_.find('\n', consumed_ + searched_);
  searched_ = pending();
  if ((end == std::string::npos ? searched_ : end - consumed_) > kMaxFrame)
    return Status(kExitSoftware, "control protocol: a line of over " + std::to_string(kMaxFrame) + " bytes");
  if (end == std::string::npos) return std::optional<std::string>();
  searched_ = 0;
  return std::optional(take(0, end - consumed_, 1));
}

// The `size` bytes between `before` others and `after` others, which are dropped.
std::string FrameReader::take(std::size_t before, std::size_t size, std::size_t after) {
  std::string payload = buffer_.substr(consumed_ + before, size);
  consumed_ += before + size + after;
  // Shift the rest down only when most of the buffer is spent, so that many small frames cost linear time.
  if (consumed_ * 2 >= buffer_.size()) {
    buffer_.erase(0, consumed_);
    consumed_ = 0;
  }
  return payload;
}

Result<std::optional<std::string>> FrameReader::next() {
  if (form_ == Form::kLines) return next_line();
  if (pending() < kLength) return std::optional<std::string>();
  const std::size_t size = payload_size();
  if (size > kMaxFrame) {
    return Status(kExitSoftware, "control protocol: a frame of " + std::to_string(size) + " bytes, at most " +
                                     std::to_string(kMaxFrame) + " are allowed");
  }
  if (pending() < kLength + size) return std::optional<std::string>();
  return std::optional(take(kLength, size, 0));
}

}  // namespace dtrun
