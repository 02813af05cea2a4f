// What `dtrun doctor` starts on each node of a job to look between them: an ordinary run whose program is
// this. Its rendezvous, keys, remote shells and store are those of any run.
#pragma once

#include <string>

#include "cmd/check/gather.h"
#include "proto/core/status.h"

namespace dtrun::cmd {

// Meets the others through the run's store, measures, and returns the report's JSON, the same on all nodes:
// rank 0 makes it. `wanted`: nodes. Some seconds; EX_UNAVAILABLE if another node is lost meanwhile.
Result<std::string> probe_between(const CheckedJob& job, int wanted);

}  // namespace dtrun::cmd
