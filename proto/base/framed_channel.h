// Protobuf messages on a descriptor, each in a frame (proto/core/framing.h).
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "proto/core/framing.h"

namespace dtrun {

// REQUIRES: the message takes at most kMaxFrame bytes.
template <typename Message>
std::string frame_of(const Message& message) {
  std::string frame;
  append_frame(message.SerializeAsString(), &frame);
  return frame;
}

// Writes all of `bytes` to a blocking descriptor. False once they cannot be written: nobody reads them, or
// the disk is full. A socket raises no SIGPIPE; a pipe does.
bool write_all(int fd, std::string_view bytes);

enum class Portion { kBytes, kNoneYet, kEnd };

// Reads once, at most 64 KiB, from a blocking or a non-blocking descriptor. kNoneYet: nothing can be read at
// once, or a signal came; kEnd: the end of the stream, or an error.
Portion read_portion(int fd, std::size_t at_most, FrameReader* frames);

// EX_SOFTWARE: the bytes are no Message.
template <typename Message>
Result<Message> message_of(const std::string& payload) {
  Message message;
  if (!message.ParseFromString(payload))
    return Status(kExitSoftware, "control protocol: a frame with no message of the other end");
  return message;
}

// Cuts messages of one kind out of a stream. Not thread-safe.
template <typename Message>
class MessageReader {
 public:
  Portion read_from(int fd) { return read_portion(fd, std::string::npos, &frames_); }
  // Takes no byte that belongs to a later message than the next.
  Portion read_next_from(int fd) { return read_portion(fd, frames_.missing(), &frames_); }
  void push(std::string_view bytes) { frames_.push(bytes); }

  // The next whole message, nothing if more bytes are needed. After an error (EX_SOFTWARE: a frame over
  // kMaxFrame, or bytes that are no Message) the stream is unusable.
  Result<std::optional<Message>> next() {
    ASSIGN_OR_RETURN(auto frame, frames_.next());
    if (!frame) return std::optional<Message>();
    ASSIGN_OR_RETURN(auto message, message_of<Message>(*frame));
    return std::optional<Message>(std::move(message));
  }

  // Bytes of a message that is not whole.
  std::size_t pending() const { return frames_.pending(); }

 private:
  FrameReader frames_;
};

}  // namespace dtrun
