// A name that no other entry has, for what lies outside an entry's own world: files below the build folder,
// control groups. A process id does not do: in its namespace each entry has the same few.
#pragma once

#include <cstdio>
#include <random>
#include <string>

namespace dtrun::test {

// prefix-0123abcd
inline std::string unique(const std::string& prefix) {
  char digits[9];
  std::snprintf(digits, sizeof digits, "%08x", std::random_device{}());
  return prefix + "-" + digits;
}

}  // namespace dtrun::test
