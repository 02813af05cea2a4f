#include "proto/core/home_path.h"

#include <cctype>

#include "proto/core/exit_codes.h"

namespace dtrun {
namespace {

bool begins_variable(std::string_view text) {
  if (!text.starts_with('$') || text.size() < 2) return false;
  return text[1] == '{' || text[1] == '_' || std::isalpha(static_cast<unsigned char>(text[1])) != 0;
}

bool has_variable(std::string_view path) {
  for (std::size_t at = 0; at < path.size(); ++at)
    if ((at == 0 || path[at - 1] == '/') && begins_variable(path.substr(at))) return true;
  return false;
}

}  // namespace

Result<std::string> expanded_path(const std::string& path, const char* home) {
  if (has_variable(path))
    return Status(kExitUsage,
                  "no shell puts the variable in here; write the path itself, or ~/ for the home");
  if (!path.starts_with('~')) return path;
  const std::size_t slash = path.find('/');
  if (path.substr(0, slash) != "~")
    return Status(kExitUsage,
                  "only ~/ is a home here; write the path itself, or ./~ for a file of that name");
  if (home == nullptr || *home != '/')
    return Status(kExitUsage, "~ is the home, and HOME is no absolute path here");
  return slash == std::string::npos ? home : home + path.substr(slash);
}

}  // namespace dtrun
