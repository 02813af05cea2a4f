// What the limits of this process (setrlimit(2)) leave it: open files and memory. A program that needs much
// asks before it starts, because gRPC ends the process, or waits for ever for a thread, when it cannot have
// one.
#pragma once

#include <cstddef>

#include "proto/core/status.h"

namespace dtrun::agent {

// Raises the soft limit, if it is lower, to the number of files that an agent opens: its own, those of each
// worker (pipes, log files, process handle, control socket), and, in case it hosts the coordinator, a
// connection for each node and some for unauthenticated peers. Returns the number left for unauthenticated
// peers within the limit, maybe none. Fails if the hard limit does not allow the workers.
Result<std::size_t> allow_open_files(int workers, int nodes);

// Raises the soft limit to the hard one.
void allow_all_open_files();

// Fails if the stacks of this process's threads are too small (ulimit -s), or a limit on address space
// (ulimit -v) does not leave them. Under such a limit all threads share one heap. Call before the first
// thread starts.
Status check_memory_limit();

}  // namespace dtrun::agent
