// A core file of a process that has the job's key gives the key to any reader.
#pragma once

#include <sys/resource.h>

namespace dtrun::agent {

// From here on this process leaves no core file. It stays open to debuggers and to /proc, for its own user.
void leave_no_core_file();

// The limit of core files as it was before, which programs that are started from here shall have.
rlimit core_file_limit();

}  // namespace dtrun::agent
