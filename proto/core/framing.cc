#include "proto/core/framing.h"

namespace dtrun {

void append_frame(std::string_view payload, std::string* out) {
  const auto size = static_cast<std::uint32_t>(payload.size());
  for (int shift = 0; shift < 32; shift += 8) out->push_back(static_cast<char>(size >> shift));
  out->append(payload);
}

Result<std::optional<std::string>> FrameReader::next() {
  if (pending() < 4) return std::optional<std::string>();
  std::uint32_t size = 0;
  for (int i = 0; i < 4; ++i) {
    size |= static_cast<std::uint32_t>(static_cast<unsigned char>(buffer_[consumed_ + i])) << (8 * i);
  }
  if (size > kMaxFrame) {
    return Status(kExitSoftware, "control protocol: a frame of " + std::to_string(size) + " bytes, at most " +
                                     std::to_string(kMaxFrame) + " are allowed");
  }
  if (pending() < 4 + size) return std::optional<std::string>();
  std::string payload = buffer_.substr(consumed_ + 4, size);
  consumed_ += 4 + size;
  // Shift the rest down only when most of the buffer is spent, so that many small frames cost linear time.
  if (consumed_ * 2 >= buffer_.size()) {
    buffer_.erase(0, consumed_);
    consumed_ = 0;
  }
  return std::optional<std::string>(std::move(payload));
}

}  // namespace dtrun
