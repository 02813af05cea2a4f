// pidfd system calls: glibc 2.36 declares its wrappers without C linkage, so C++ cannot call them.
#pragma once

#include <signal.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

namespace dtrun::agent {

// A close-on-exec descriptor that becomes readable when the process ends; -1 and errno on failure.
inline int open_pidfd(pid_t pid) { return static_cast<int>(syscall(SYS_pidfd_open, pid, 0)); }

// Signals exactly the process that was opened, even if its number was given to another since.
inline bool signal_pidfd(int pidfd, int number) {
  return syscall(SYS_pidfd_send_signal, pidfd, number, nullptr, 0) == 0;
}

}  // namespace dtrun::agent
