// The agent: joins the rendezvous, starts and watches this node's workers, carries the job to its end.
#pragma once

#include "agent/core/job_spec.h"

namespace dtrun::agent {

// Runs the job's part on this node; returns the exit code of the contract (proto/core/exit_codes.h) once
// nothing of the job runs here any more. Blocks the calling thread, which must be the process's only one;
// takes over all signals and makes the process a subreaper. REQUIRES: descriptors 0 to 2 are open.
int run(const JobSpec& spec);

}  // namespace dtrun::agent
