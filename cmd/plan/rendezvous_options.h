// The options of the group "How nodes meet": backend, endpoint, run id, MASTER_ADDR and MASTER_PORT,
// timeouts.
#pragma once

#include "agent/core/job_spec.h"
#include "cmd/options/options.h"
#include "proto/core/status.h"

namespace dtrun::cmd {

// Fills spec->rendezvous and spec->run_id; with the env backend also nodes, nproc and node_rank.
// REQUIRES: spec->nodes and spec->node_rank are what the options say.
Status read_rendezvous_options(const Options& options, const Environment& environment, const Notice& notice,
                               JobSpec* spec);

}  // namespace dtrun::cmd
