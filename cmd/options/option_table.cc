#include "cmd/options/option_table.h"

#include <algorithm>
#include <cctype>

namespace dtrun::cmd {

std::string with_dashes(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

std::string in_capitals(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::toupper(c); });
  return name;
}

}  // namespace dtrun::cmd
