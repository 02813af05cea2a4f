#pragma once

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace dtrun {

// All of a file, as far as it can be read: of a process that ends meanwhile /proc has the begin, or nothing.
// Throws no error of reading, unlike a string made of std::istreambuf_iterator.
inline std::string text_in(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace dtrun
