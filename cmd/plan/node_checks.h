// Checks for everything that would stop a job on this node as soon as it began, before anything starts.
#pragma once

#include "agent/core/job_spec.h"
#include "cmd/options/given.h"
#include "proto/core/status.h"

namespace dtrun::cmd {

// Asks the worker's program for the facts on this node's processor that its results depend on, if several
// nodes compute on their CPUs, and must do so alike. Takes some 50 ms. Before the node joins the others.
void find_processor(JobSpec* spec);

// The worker's program is there, the data fits the model, and there is enough memory. On a single node also:
// the output directory can be written, no other process writes it (waits a while for its end), and the run
// may go on from its contents.
Status check_node(const JobSpec& spec, const Notice& notice);

// The program can be found and read, and output can be written: for a node whose user is elsewhere and would
// see an error only once the others have started. EX_NOINPUT, or EX_CANTCREAT for output.
Status check_files(const JobSpec& spec, const std::vector<std::string>& program);

}  // namespace dtrun::cmd
