// What messages about data files have in common.
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

// "PATH: what is wrong; the way out", EX_NOINPUT.
inline Status bad_input(const std::filesystem::path& path, const std::string& fault) {
  return Status(kExitNoInput, path.string() + ": " + fault);
}

}  // namespace dtrun::worker
