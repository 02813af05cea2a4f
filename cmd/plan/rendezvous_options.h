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

// dtrun itself as a program of a run, on whichever host: a worker begins as a copy of its agent.
inline constexpr char kItself[] = "/proc/self/exe";

// The command line that looks, on every node of this job, what is in the way between them. Empty for a
// run of the doctor itself.
std::string doctor_line(const Options& typed);

// --rdzv_backend or its default.
std::string rendezvous_backend(const Options& options);

}  // namespace dtrun::cmd
