// What would stop a job on this node as soon as it began, looked at before anything starts.
#pragma once

#include "agent/core/job_spec.h"
#include "cmd/options/given.h"
#include "proto/core/status.h"

namespace dtrun::cmd {

// The worker's program is there, nobody else writes the output directory (waits a while for its end), and
// there is enough memory.
Status check_node(const JobSpec& spec, const Notice& notice);

// The program can be found and read, and output can be written: for a node whose user is elsewhere and would
// see an error only once the others have started. EX_NOINPUT, or EX_CANTCREAT for what is to be written.
Status check_files(const JobSpec& spec, const std::vector<std::string>& program);

}  // namespace dtrun::cmd
