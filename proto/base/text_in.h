#pragma once

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace dtrun::agent {

// All of a file; empty if it cannot be read.
inline std::string text_in(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace dtrun::agent
