// UTF-8: whether bytes are it, and whole characters out of a stream of bytes. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace dtrun::worker {

// Where the first byte lies that is no part of a whole, well-formed character; nothing if all are.
std::optional<std::size_t> invalid_utf8_at(std::string_view bytes);

// For output that people read: characters appear when they are whole, and what can become none appears as
// U+FFFD.
class WholeCharacters {
 public:
  // The characters that are whole now.
  std::string take(std::string_view bytes);
  // What is left when no more follows.
  std::string finish();

 private:
  std::string pending_;  // the beginning of a character
};

}  // namespace dtrun::worker
