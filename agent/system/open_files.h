// How many files, sockets and pipes this process may have open at once. A program that needs many asks for
// them before it starts, because gRPC ends the process when it cannot have one.
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

}  // namespace dtrun::agent
