#include "proto/core/utf8.h"

#include <algorithm>
#include <cstddef>

namespace dtrun {
namespace {

// Length of the valid UTF-8 sequence at the front of `text`, 0 if there is none.
std::size_t sequence(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // Overlong forms, surrogates, and characters beyond U+10FFFF.
  if (first == 0xe0 && byte(1) < 0xa0) return 0;
  if (first == 0xed && byte(1) > 0x9f) return 0;
  if (first == 0xf0 && byte(1) < 0x90) return 0;
  if (first == 0xf4 && byte(1) > 0x8f) return 0;
  return length;
}

// Control characters of ASCII, and those from U+0080 to U+009F in ISO 6429: U+009B begins a sequence as ESC [
// does.
bool is_control(std::string_view character) {
  const auto first = static_cast<unsigned char>(character[0]);
  if (first == 0xc2) return static_cast<unsigned char>(character[1]) < 0xa0;
  return (first < 0x20 && first != '\t' && first != '\n') || first == 0x7f;
}

}  // namespace

std::string_view overwritten(std::string_view line) {
  while (line.ends_with('\r')) line.remove_suffix(1);
  if (const std::size_t cr = line.rfind('\r'); cr != std::string_view::npos) line.remove_prefix(cr + 1);
  return line;
}

std::string printable(std::string_view text) {
  text = overwritten(text);
  std::string out;
  while (!text.empty()) {
    const std::size_t length = sequence(text);
    const std::string_view character = text.substr(0, std::max<std::size_t>(1, length));
    if (length == 0 || is_control(character))
      out.push_back('?');
    else
      out.append(character);
    text.remove_prefix(character.size());
  }
  return out;
}

std::string printable_line(std::string_view text) {
  std::string line = printable(text);
  std::ranges::replace(line, '\n', ' ');
  return line;
}

}  // namespace dtrun
