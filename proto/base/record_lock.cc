#include "proto/base/record_lock.h"

#include <fcntl.h>
#include <unistd.h>

namespace dtrun {
namespace {

struct flock whole_file() {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

}  // namespace

bool lock_whole(int fd) {
  struct flock lock = whole_file();
  return fcntl(fd, F_SETLK, &lock) == 0;
}

std::optional<pid_t> lock_holder(int fd) {
  struct flock lock = whole_file();
  if (fcntl(fd, F_GETLK, &lock) != 0 || lock.l_type == F_UNLCK) return std::nullopt;
  return lock.l_pid;
}

}  // namespace dtrun
