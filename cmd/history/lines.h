// Lines of a run's files, which may be anybody's.
#pragma once

#include <array>
#include <cstddef>
#include <istream>
#include <string>

namespace dtrun::cmd {

inline constexpr std::size_t kMostOfLine = 16u << 20;  // bytes; also of a JSON document

// Reads the next line, without its end. One that is longer than kMostOfLine is passed over, as an empty one.
// False at the end of the text.
inline bool next_line(std::istream& text, std::string* line) {
  std::array<char, 1 << 16> part;
  bool too_long = false;
  line->clear();
  for (int end = text.peek(); end != std::istream::traits_type::eof(); end = text.peek()) {
    if (end == '\n') return text.get(), true;
    text.get(part.data(), part.size());
    too_long = too_long || line->size() + static_cast<std::size_t>(text.gcount()) > kMostOfLine;
    too_long ? line->clear() : void(line->append(part.data(), static_cast<std::size_t>(text.gcount())));
  }
  return !line->empty() || too_long;
}

}  // namespace dtrun::cmd
