#include "worker/data/text_files.h"

#include <fnmatch.h>

#include <algorithm>

#include "worker/base/pulse.h"
#include "worker/data/message.h"

namespace dtrun::worker {

namespace fs = std::filesystem;

// Links to files count, links to directories are not followed: they may lead back.
Result<std::vector<fs::path>> text_files(const fs::path& path, const std::string& pattern) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return std::vector{path};
  std::vector<fs::path> paths;
  for (fs::recursive_directory_iterator entry(path, error), end; !error && entry != end;
       entry.increment(error)) {
    Pulse::beat();
    std::error_code unknown;  // the type of a broken link; opening it fails later with a message
    const fs::file_type type = entry->status(unknown).type();
    if (entry->path().filename().string().starts_with('.')) {
      entry.disable_recursion_pending();
    } else if ((type == fs::file_type::regular || type == fs::file_type::not_found) &&
               fnmatch(pattern.c_str(), entry->path().filename().c_str(), 0) == 0) {
      paths.push_back(entry->path());
    }
  }
  if (error) return bad_input(path, "cannot be read: " + error.message() + "; check who may read it");
  std::ranges::sort(paths);
  return paths;
}

}  // namespace dtrun::worker
