// Files and lists of hosts, as other launchers have them: Open MPI ("h slots=N max_slots=M"), DeepSpeed
// ("h slots=N"), MPICH Hydra ("h:N"), Intel MPI ("h[01-05]:2"). Pure: the text is the caller's to read.
//
// A host that is named more than once has a slot for each time. If slots are given as well, it is refused:
// Open MPI would add them up, DeepSpeed refuses, Hydra makes two hosts of it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cmd/hosts/host.h"
#include "proto/core/status.h"

namespace dtrun::cmd {

// At least one host, in the order of the file, each name once. Failures have EX_CONFIG and name path:line.
Result<std::vector<Host>> parse_hostfile(std::string_view text, const std::string& path);

// "a,b[0-3],ada@h:2,c[1-2,7]", "[::1]:2", where "[08-11]" keeps its zeros; slots after a colon. `source` is
// its name in messages ("-H"). At least one host, each name once. Failures have EX_USAGE.
Result<std::vector<Host>> parse_host_list(std::string_view text, const std::string& source);

}  // namespace dtrun::cmd
