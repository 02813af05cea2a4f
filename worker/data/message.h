// Parts of the messages about data files.
#pragma once

#include <filesystem>
#include <string>

#include "proto/core/status.h"
#include "proto/core/text.h"

namespace dtrun::worker {

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
