// What `dtrun doctor` starts on each node of a job to look between them: an ordinary run whose program is
// this. Its rendezvous, keys, remote shells and store are those of any run.
#pragma once

#include "cmd/doctor/core/finding.h"
#include "cmd/doctor/gather.h"
#include "proto/core/status.h"

namespace dtrun::doctor {

// Meets the others through the run's store, measures, and returns the report, the same on all nodes: rank 0
// makes it. `wanted`: nodes. `began_at`: when this node began to wait for the others, in seconds of the
// steady clock. Some seconds; EX_UNAVAILABLE if another node is lost meanwhile.
Result<Report> probe_between(const Job& job, int wanted, double began_at);

}  // namespace dtrun::doctor
