#include "worker/prepare/target_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "proto/base/descriptor.h"
#include "worker/base/error.h"

namespace dtrun::worker {
namespace {

namespace fs = std::filesystem;

void check_free(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return;
  if (!fs::is_directory(path, error))
    throw WorkerError(kExitCannotCreate, path.string() + " is no directory; choose another one");
  fs::directory_iterator first(path, error);
  if (error) throw cannot_write("cannot read " + path.string(), error.value(), "another directory");
  if (first != fs::directory_iterator()) {
    throw WorkerError(kExitCannotCreate, path.string() + " holds something already (" +
                                             first->path().filename().string() +
                                             "); choose another directory, or remove it");
  }
}

// The lock of the parent of scratch directories, held while one is made or looked at: between making and
// locking it, a new directory looks abandoned.
Descriptor lock_of(const fs::path& parent) {
  Descriptor lock(open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!lock.open()) throw cannot_write("cannot open " + parent.string(), errno, "another directory");
  // Some network file systems have no locks, so a failure is ignored.
  while (flock(lock.get(), LOCK_EX) != 0 && errno == EINTR) {
  }
  return lock;
}

}  // namespace

TargetDirectory::TargetDirectory(const fs::path& path) {
  std::error_code error;
  path_ = fs::weakly_canonical(fs::absolute(path, error), error);
  if (path_.filename().empty()) path_ = path_.parent_path();  // the path ended in a slash
  check_free(path_);
  const fs::path parent = path_.parent_path();
  fs::create_directories(parent, error);
  if (error) throw cannot_write("cannot create " + parent.string(), error.value(), "another directory");
  const Descriptor lock = lock_of(parent);
  const fs::path scratch = parent / ("." + path_.filename().string() + ".prepare");
  remove_if_abandoned(scratch);
  if (fs::exists(scratch, error)) {
    throw WorkerError(kExitCannotCreate, path_.string() + " is being prepared by another dtrun prepare (in " +
                                             scratch.string() +
                                             "); wait for its end, or choose another directory");
  }
  if (access(parent.c_str(), W_OK) != 0)
    throw cannot_write("cannot write in " + parent.string(), errno, "another directory");
  scratch_ = std::make_unique<ScratchDirectory>(scratch);
}

void TargetDirectory::publish() {
  sync_directory(scratch());
  // rename() replaces an empty directory.
  if (rename(scratch().c_str(), path_.c_str()) != 0) {
    const std::string why = errno == EBUSY || errno == EXDEV
                                ? "it is a mount point; name a directory within it"
                                : std::strerror(errno);
    throw WorkerError(kExitCannotCreate,
                      "cannot give " + scratch().string() + " the name " + path_.string() + ": " + why);
  }
  sync_directory(path_.parent_path());
}

}  // namespace dtrun::worker
