#include "agent/process/scratch.h"

#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <system_error>

#include "proto/base/ids.h"
#include "proto/base/temporary.h"
#include "proto/core/exit_codes.h"

namespace dtrun::agent {

std::filesystem::path new_scratch_path() {
  const std::string name = "dtrun-" + random_id();
  std::error_code ignored;
  std::filesystem::path path = std::filesystem::absolute(temporary_folder() / name, ignored);
  const bool fits = coordinator_socket_in(path).native().size() < sizeof(sockaddr_un::sun_path);
  return fits ? path : std::filesystem::path("/tmp") / name;
}

std::filesystem::path coordinator_socket_in(const std::filesystem::path& scratch) {
  return scratch / "coordinator";
}

Scratch::~Scratch() {
  std::error_code ignored;
  if (made_) std::filesystem::remove_all(path_, ignored);
}

// Only this user may read it. mkdir fails on a folder that another process has put there.
Status Scratch::make() {
  if (made_) return {};
  if (mkdir(path_.c_str(), 0700) != 0)
    return errno_status(kExitCannotCreate, "cannot make the directory " + path_.string(), errno);
  made_ = true;
  return {};
}

}  // namespace dtrun::agent
