// The options of the group "How nodes meet": backend, endpoint, run id, MASTER_ADDR and MASTER_PORT,
// timeouts.
#pragma once

#include <string>

#include "cmd/plan/draft.h"

namespace dtrun::cmd {

// Fills spec.rendezvous and spec.run_id; with the env backend also nodes, nproc and node_rank. REQUIRES:
// spec.nodes and spec.node_rank have the options' values.
Status read_rendezvous_options(Draft& draft);

// Whether --rdzv_conf says failover=never: the first host has the coordinator for as long as the run lasts.
bool forbids_failover(const Options& options);

// --rdzv_backend or its default.
std::string rendezvous_backend(const Options& options);

}  // namespace dtrun::cmd
