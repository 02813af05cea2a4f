#include "agent/core/left_behind.h"

#include <algorithm>

#include "proto/core/text.h"
#include "proto/core/utf8.h"

namespace dtrun::agent {
namespace {

constexpr std::size_t kNamed = 3, kLongestName = 60;

// A short name for a command line, which may be a whole script, on one line.
std::string name_of(std::string command) {
  const auto breaks = [](char c) { return c == '\n' || c == '\r' || c == '\t'; };
  std::ranges::replace_if(command, breaks, ' ');
  const std::string whole = printable(command), name = shortened(whole, kLongestName);
  return name.size() < whole.size() ? name + "…" : name;
}

}  // namespace

std::string left_behind_text(const std::vector<std::string>& commands, const std::string& worker) {
  std::string names;
  for (std::size_t i = 0; i < std::min(commands.size(), kNamed); ++i)
    names += (i > 0 ? ", " : "") + name_of(commands[i]);
  if (commands.size() > kNamed) names += ", …";
  return std::to_string(commands.size()) + (commands.size() == 1 ? " process" : " processes") + " that " +
         worker + " left behind (" + names + ")";
}

}  // namespace dtrun::agent
