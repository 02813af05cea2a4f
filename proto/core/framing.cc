#include "proto/core/framing.h"

namespace dtrun {

void append_frame(std::string_view payload, std::string* out) {
  const auto size = static_cast<std::uint32_t>(payload.size());
  for (int shift = 0; shift < 32; shift += 8) out->push_back(static_cast<char>(size >> shift));
  out->append(payload);
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

Result<std::optional<std::string>> FrameReader::next() {
  if (pending() < kLength) return std::optional<std::string>();
  const std::size_t size = payload_size();
  if (size > kMaxFrame) {
    return Status(kExitSoftware, "control protocol: a frame of " + std::to_string(size) + " bytes, at most " +
                                     std::to_string(kMaxFrame) + " are allowed");
  }
  if (pending() < kLength + size) return std::optional<std::string>();
  std::string payload = buffer_.substr(consumed_ + kLength, size);
  consumed_ += kLength + size;
  // Shift the rest down only when most of the buffer is spent, so that many small frames cost linear time.
  if (consumed_ * 2 >= buffer_.size()) {
    buffer_.erase(0, consumed_);
    consumed_ = 0;
  }
  return std::optional<std::string>(std::move(payload));
}

}  // namespace dtrun
