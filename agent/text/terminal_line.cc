#include "agent/text/terminal_line.h"

namespace dtrun::agent {
namespace {

// Columns that the character beginning with `first` takes. From U+3000 on most are wide (Chinese, Japanese,
// Korean, emoji); a few that are not leave the line a little short.
int width_of(unsigned char first) {
  const bool continues = (first & 0xc0) == 0x80;
  return continues ? 0 : first >= 0xe3 ? 2 : 1;
}

}  // namespace

std::string fitting(std::string_view line, int columns) {
  std::string text;
  int used = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const auto c = static_cast<unsigned char>(line[i]);
    if (c == 0x1b && i + 1 < line.size() && line[i + 1] == '[') {
      i += 2;
      while (i < line.size() && (line[i] < 0x40 || line[i] > 0x7e)) ++i;
      continue;
    }
    if ((c < 0x20 && c != '\t') || c == 0x7f) continue;
    used += width_of(c);
    if (used > columns) break;
    text.push_back(c == '\t' ? ' ' : line[i]);
  }
  return text;
}

int width_of(std::string_view line) {
  int width = 0;
  for (const char c : line) width += width_of(static_cast<unsigned char>(c));
  return width;
}

}  // namespace dtrun::agent
