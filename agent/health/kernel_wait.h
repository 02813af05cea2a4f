// Reads from /proc where a process stands, without stopping it. To be asked before a debugger looks: that
// puts its own wait in the place of the process's.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "agent/core/stack_location.h"

namespace dtrun::agent {

// The wait of the main thread. Unreadable fields are left empty.
KernelWait kernel_wait(pid_t pid);

// The wait of the thread that tells most: one that waits for a disk or reads a file, or is stopped, else the
// main one. For programs whose threads wait for each other.
KernelWait kernel_wait_of_any(pid_t pid);

// For every thread of `processes`: name, state, system call, where in the kernel it waits, and the kernel's
// own stack where we may read it. For people.
std::string thread_states(const std::vector<pid_t>& processes);

// User and system time in clock ticks; 0 if there is no such process.
std::int64_t cpu_ticks(pid_t pid);

}  // namespace dtrun::agent
