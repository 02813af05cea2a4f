#include "agent/process/scratch.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <system_error>

#include "proto/base/ids.h"
#include "proto/base/temporary.h"
#include "proto/core/exit_codes.h"

namespace dtrun::agent {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "dtrun-";

Descriptor open_folder(const fs::path& path) {
  return Descriptor(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

// Names of new_scratch_path(): other folders of dtrun begin alike.
bool is_scratch(const std::string& name) {
  if (!name.starts_with(kPrefix) || name.size() != kPrefix.size() + random_id().size()) return false;
  return std::ranges::all_of(name.substr(kPrefix.size()),
                             [](unsigned char c) { return std::isxdigit(c) != 0; });
}

// The folder at `path` is the open one.
bool is_at(const fs::path& path, int folder) {
  struct stat named {
  }, open{};
  return lstat(path.c_str(), &named) == 0 && fstat(folder, &open) == 0 && named.st_dev == open.st_dev &&
         named.st_ino == open.st_ino;
}

// A process that has made its folder holds a lock on it until it ends.
void remove_abandoned(const fs::path& among) {
  std::error_code error, ignored;
  for (fs::directory_iterator entry(among, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    const fs::path path = entry->path();
    if (!is_scratch(path.filename().string())) continue;
    const Descriptor folder = open_folder(path);
    struct stat found {};
    if (!folder.open() || fstat(folder.get(), &found) != 0 || found.st_uid != geteuid()) continue;
    if (flock(folder.get(), LOCK_EX | LOCK_NB) == 0 && is_at(path, folder.get()))
      fs::remove_all(path, ignored);
  }
}

}  // namespace

std::filesystem::path new_scratch_path() {
  const std::string name = std::string(kPrefix) + random_id();
  std::error_code ignored;
  std::filesystem::path path = std::filesystem::absolute(temporary_folder() / name, ignored);
  const bool fits = coordinator_socket_in(path).native().size() < sizeof(sockaddr_un::sun_path);
  return fits ? path : std::filesystem::path("/tmp") / name;
}

std::filesystem::path coordinator_socket_in(const std::filesystem::path& scratch) {
  return scratch / "coordinator";
}

Scratch::~Scratch() {
  if (made_)
    disk_.run([path = path_] {
      std::error_code ignored;
      std::filesystem::remove_all(path, ignored);
    });
}

// Only this user may read it. mkdir fails on a folder that another process has put there.
Status Scratch::make() {
  if (made_) return {};
  // Another process may take a folder that has no lock yet for an abandoned one, and has removed it by then.
  do {
    if (mkdir(path_.c_str(), 0700) != 0)
      return errno_status(kExitCannotCreate, "cannot make the directory " + path_.string(), errno);
    lock_ = open_folder(path_);
  } while (lock_.open() ? flock(lock_.get(), LOCK_EX) == 0 && !is_at(path_, lock_.get()) : errno == ENOENT);
  made_ = true;
  disk_.post([among = path_.parent_path()] { remove_abandoned(among); });
  return {};
}

bool Scratch::answers() {
  return !made_ || disk_.run([path = path_] {
    struct stat ignored {};
    stat(path.c_str(), &ignored);
  });
}

}  // namespace dtrun::agent
