// A lock on a whole file. It belongs to this process: no child inherits it, and it ends with the process, or
// when the process closes any descriptor of the file.
#pragma once

#include <sys/types.h>

#include <optional>

namespace dtrun {

// False, and errno, if another process has it, or the file system has no locks.
bool lock_whole(int fd);

// The other process that has it.
std::optional<pid_t> lock_holder(int fd);

}  // namespace dtrun
