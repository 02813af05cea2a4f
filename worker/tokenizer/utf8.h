// UTF-8: checks bytes, and takes whole characters out of a stream of bytes. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace dtrun::worker {

// The place of the first byte that is not part of a whole, well-formed character; nothing if the text is
// valid.
std::optional<std::size_t> invalid_utf8_at(std::string_view bytes);

// For output that people read: a character appears once it is whole, and bytes that cannot become one appear
// as U+FFFD.
class WholeCharacters {
 public:
  // The characters that are whole now.
  std::string take(std::string_view bytes);
  // The rest, at the end of the stream.
  std::string finish();

 private:
  std::string pending_;  // the beginning of a character
};

}  // namespace dtrun::worker
