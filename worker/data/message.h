// Parts of the messages about data files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "proto/core/status.h"

namespace dtrun::worker {

// 1234567 -> "1,234,567"
inline std::string with_thousands(std::uint64_t number) {
  std::string digits = std::to_string(number);
  for (std::size_t at = digits.size(); at > 3;) {
    at -= 3;
    digits.insert(at, 1, ',');
  }
  return digits;
}

// "PATH: FAULT; REMEDY", EX_NOINPUT.
inline Status bad_input(const std::filesystem::path& path, const std::string& fault) {
  return Status(kExitNoInput, path.string() + ": " + fault);
}

// "install the package fortunes, or ", where a Debian package brings the files at `path`, for data that
// dtrun's own configs name. Else empty.
inline std::string install_or(const std::filesystem::path& path) {
  struct Brought {
    const char *directory, *package;
  };
  static constexpr Brought kPackages[] = {{.directory = "/usr/share/games/fortunes", .package = "fortunes"}};
  for (const auto& [directory, package] : kPackages)
    if (path.string().starts_with(directory)) return std::string("install the package ") + package + ", or ";
  return "";
}

}  // namespace dtrun::worker
