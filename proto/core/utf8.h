// UTF-8: whether bytes are it, and a line of any bytes made fit for a protobuf string and a terminal. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace dtrun {

// The front of a text: a character, one that is cut off by the text's end, or bytes that cannot become one.
struct Utf8Front {
  std::size_t length;  // in bytes; not 0
  enum Kind : std::uint8_t { kWhole, kCut, kInvalid } kind;
};
// REQUIRES: bytes is not empty.
Utf8Front utf8_front(std::string_view bytes);

// The place of the first byte that is not part of a whole, well-formed character; nothing if the text is
// valid.
std::optional<std::size_t> invalid_utf8_at(std::string_view bytes);

// The part of a line that a terminal still shows: the text after the last carriage return that is followed by
// something.
std::string_view overwritten(std::string_view line);

// The part after the last carriage return (as a terminal would show it), without escape sequences (colours,
// ECMA-48), and with '?' for other control characters, for those that hide or turn text around (U+202E), and
// for bytes that are not UTF-8. Newlines and tabs stay.
std::string printable(std::string_view text);
// The same of each line, without newlines at the end: the last `most` bytes of it if it is longer, from a
// line's beginning if there is one. The innermost frames of a traceback, which name the fault, come last.
std::string printable_lines(std::string_view text, std::size_t most = 16u << 10);
// The same as one line: a space for each newline.
std::string printable_line(std::string_view text);

}  // namespace dtrun
