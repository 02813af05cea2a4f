#include "proto/core/utf8.h"

#include <algorithm>
#include <cstring>

#include "proto/core/text.h"

namespace dtrun {
namespace {

// REQUIRES: a whole character.
char32_t code_point(std::string_view character) {
  const auto first = static_cast<unsigned char>(character[0]);
  char32_t code = character.size() == 1 ? first : first & (0x7fu >> character.size());
  for (const char c : character.substr(1)) code = code << 6 | (static_cast<unsigned char>(c) & 0x3fu);
  return code;
}

// Control characters of ASCII, and those from U+0080 to U+009F in ISO 6429: U+009B begins a sequence as ESC [
// does. And format characters that hide, or show text in another order than it is in. The joiners U+200C and
// U+200D are parts of words and emoji.
bool is_control(std::string_view character) {
  struct Range {
    char32_t first, last;
  };
  static constexpr Range kUnseen[] = {{0x7f, 0x9f},     {0xad, 0xad},      {0x61c, 0x61c},   {0x200b, 0x200b},
                                      {0x200e, 0x200f}, {0x2028, 0x202e},  {0x2060, 0x206f}, {0xfeff, 0xfeff},
                                      {0xfff9, 0xfffb}, {0xe0000, 0xe007f}};
  const char32_t code = code_point(character);
  if (code < 0x7f) return code < 0x20 && code != '\t' && code != '\n';
  return std::ranges::any_of(kUnseen,
                             [=](const Range& range) { return code >= range.first && code <= range.last; });
}

bool is_within(char c, char first, char last) { return first <= c && c <= last; }

// The length of the escape sequence with which the text begins; 0 if it begins with none, or with a part of
// one. Control sequences end with their final byte, commands of the operating system (titles, links) with BEL
// or ST.
std::size_t escape_length(std::string_view text) {
  if (text.size() < 2 || text[0] != '\x1b') return 0;
  if (text[1] == '[') {
    std::size_t end = 2;
    while (end < text.size() && is_within(text[end], ' ', '?')) ++end;
    return end < text.size() && is_within(text[end], '@', '~') ? end + 1 : 0;
  }
  if (text[1] == ']') {
    const std::size_t end = text.find_first_of("\a\x1b\n", 2);
    if (end == std::string_view::npos || text[end] == '\n') return 0;
    if (text[end] == '\a') return end + 1;
    return text.substr(end).starts_with("\x1b\\") ? end + 2 : 0;
  }
  return is_within(text[1], '0', '~') ? 2 : 0;
}

}  // namespace

Utf8Front utf8_front(std::string_view bytes) {
  const auto at = [&](std::size_t i) { return static_cast<std::uint8_t>(bytes[i]); };
  const std::uint8_t first = at(0);
  if (first < 0x80) return {1, Utf8Front::kWhole};
  const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4) return {1, Utf8Front::kInvalid};
  // Neither longer than need be, nor a surrogate, nor beyond U+10FFFF.
  const std::uint8_t least = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const std::uint8_t most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  for (std::size_t i = 1; i < length; ++i) {
    if (i == bytes.size()) return {i, Utf8Front::kCut};
    if (at(i) < (i == 1 ? least : 0x80) || at(i) > (i == 1 ? most : 0xbf)) return {i, Utf8Front::kInvalid};
  }
  return {length, Utf8Front::kWhole};
}

std::optional<std::size_t> invalid_utf8_at(std::string_view bytes) {
  std::size_t i = 0;
  while (i < bytes.size()) {
    std::uint64_t eight = 0;
    if (i + sizeof eight <= bytes.size()) {
      std::memcpy(&eight, bytes.data() + i, sizeof eight);
      if ((eight & 0x8080808080808080u) == 0) {
        i += sizeof eight;
        continue;
      }
    }
    const Utf8Front found = utf8_front(bytes.substr(i, 4));
    if (found.kind != Utf8Front::kWhole) return i;
    i += found.length;
  }
  return std::nullopt;
}

std::string_view overwritten(std::string_view line) {
  while (line.ends_with('\r')) line.remove_suffix(1);
  if (const std::size_t cr = line.rfind('\r'); cr != std::string_view::npos) line.remove_prefix(cr + 1);
  return line;
}

std::string printable(std::string_view text) {
  text = overwritten(text);
  std::string out;
  while (!text.empty()) {
    if (const std::size_t escape = escape_length(text); escape > 0) {
      text.remove_prefix(escape);
      continue;
    }
    const Utf8Front front = utf8_front(text);
    const bool whole = front.kind == Utf8Front::kWhole;
    const std::string_view character = text.substr(0, whole ? front.length : 1);
    if (!whole || is_control(character))
      out.push_back('?');
    else
      out.append(character);
    text.remove_prefix(character.size());
  }
  return out;
}

std::string printable_lines(std::string_view text, std::size_t most) {
  std::string out;
  while (text.ends_with('\n')) text.remove_suffix(1);
  for (const std::string& line : split(text)) out += printable(line) + "\n";
  if (!out.empty()) out.pop_back();
  if (out.size() <= most) return out;
  const std::size_t line = out.find('\n', out.size() - most);
  return "..." + (line == std::string::npos ? printable(out.substr(out.size() - most)) : out.substr(line));
}

std::string printable_line(std::string_view text) {
  std::string line = printable(text);
  std::ranges::replace(line, '\n', ' ');
  return line;
}

}  // namespace dtrun
