#include "proto/base/temporary.h"

#include <unistd.h>

#include <cstdlib>
#include <system_error>

namespace dtrun {
namespace {

bool takes_files(const char* folder) {
  std::error_code ignored;
  return folder != nullptr && std::filesystem::is_directory(folder, ignored) &&
         access(folder, W_OK | X_OK) == 0;
}

}  // namespace

std::filesystem::path temporary_folder() {
  for (const char* folder : {static_cast<const char*>(std::getenv("TMPDIR")), "/tmp", "/var/tmp"}) {
    if (takes_files(folder)) return folder;
  }
  return "/tmp";
}

}  // namespace dtrun
