#include "cmd/commands/status/screen.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "proto/core/text.h"

namespace dtrun::cmd {
namespace {

bool begins_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }  // UTF-8

// The length of a colour ("ESC [ … m"), which takes no column, that begins at `at`; 0: none does.
std::size_t colour_at(const std::string& line, std::size_t at) {
  if (line.compare(at, 2, "\033[") != 0) return 0;
  const std::size_t end = line.find('m', at);
  return end == line.npos ? 0 : end + 1 - at;
}

int columns_of(const std::string& line) {
  int columns = 0;
  for (std::size_t at = 0; at < line.size();) {
    const std::size_t colour = colour_at(line, at);
    if (colour == 0 && begins_character(line[at])) ++columns;
    at += std::max<std::size_t>(1, colour);
  }
  return columns;
}

// The last column stays free: with the cursor behind it, some terminals erase its character and not the text
// after it.
std::string cut(const std::string& line, int columns) {
  const int width = std::max(1, columns - 1);
  if (columns_of(line) <= width) return line;
  std::size_t end = 0;
  bool coloured = false;
  for (int room = width; end < line.size();) {
    const std::size_t colour = colour_at(line, end);
    coloured = coloured || colour > 0;
    if (colour == 0 && begins_character(line[end]) && room-- == 1) break;
    end += std::max<std::size_t>(1, colour);
  }
  return line.substr(0, end) + "…" + (coloured ? "\033[0m" : "");
}

std::vector<std::string> fitted(const std::string& text, ScreenSize size) {
  std::vector<std::string> lines;
  for (const std::string& line : split(text)) lines.push_back(cut(line, size.columns));
  const auto room = static_cast<std::size_t>(std::max(2, size.rows - 1));  // one row is the cursor's
  if (lines.size() <= room) return lines;
  const std::size_t hidden = lines.size() - (room - 1);
  lines.resize(room - 1);
  lines.push_back(cut("… " + std::to_string(hidden) + " more lines", size.columns));
  return lines;
}

}  // namespace

std::string Screen::show(const std::string& text, ScreenSize size) {
  size = {std::max(1, size.rows), std::max(1, size.columns)};
  std::string bytes;
  if (lines_ > 0 && size != size_) {
    bytes = "\033[H\033[2J";  // the terminal has wrapped the old text in its own way
  } else if (lines_ > 0) {
    bytes = "\r\033[" + std::to_string(lines_) + "A";
  }
  const std::vector<std::string> lines = fitted(text, size);
  for (const std::string& line : lines) bytes += line + "\033[K\n";  // erases the rest of a longer old line
  bytes += "\033[J";
  lines_ = static_cast<int>(lines.size());
  size_ = size;
  return bytes;
}

}  // namespace dtrun::cmd
