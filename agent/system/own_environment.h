// The environment of this process.
#pragma once

#include <unistd.h>

#include <string>
#include <vector>

namespace dtrun::agent {

// "NAME=VALUE"
inline std::vector<std::string> own_environment() {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) entries.emplace_back(*entry);
  return entries;
}

}  // namespace dtrun::agent
