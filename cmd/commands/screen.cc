#include "cmd/commands/screen.h"

#include <algorithm>
#include <cstddef>
#include <sstream>
#include <vector>

namespace dtrun::cmd {
namespace {

bool begins_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }  // UTF-8

// The last column stays free: after it some terminals erase the character itself instead of what follows.
std::string cut(const std::string& line, int columns) {
  const int width = std::max(1, columns - 1);
  if (std::count_if(line.begin(), line.end(), begins_character) <= width) return line;
  std::size_t end = 0;
  for (int room = width; end < line.size(); ++end)
    if (begins_character(line[end]) && room-- == 1) break;
  return line.substr(0, end) + "…";
}

std::vector<std::string> fitted(const std::string& text, ScreenSize size) {
  std::vector<std::string> lines;
  std::istringstream all(text);
  for (std::string line; std::getline(all, line);) lines.push_back(cut(line, size.columns));
  const auto room = static_cast<std::size_t>(std::max(2, size.rows - 1));  // the cursor's own
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
  for (const std::string& line : lines) bytes += line + "\033[K\n";  // and what is left of a longer one goes
  bytes += "\033[J";
  lines_ = static_cast<int>(lines.size());
  size_ = size;
  return bytes;
}

}  // namespace dtrun::cmd
