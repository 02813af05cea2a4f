// Fills in the cluster's facts on this process (cmd/cluster/place.h) that the options do not give.
#pragma once

#include <functional>
#include <optional>

#include "cmd/plan/draft.h"

namespace dtrun::cmd {

// Fills draft.place, and adds the number of nodes, this one's rank and the run id to the options. EX_USAGE if
// the options contradict the cluster's job. REQUIRES: the config's launch section is read.
Status read_place(Draft& draft);

// Sets this node's number of workers if the options don't: one if it has several tasks, else one for each
// GPU. `uses_gpus`: whether there are any that the job's workers can use.
Status settle_workers(Draft& draft, const std::function<bool()>& uses_gpus);

// The endpoint at which the nodes meet, and whether this one hosts the coordinator. EX_USAGE if the cluster
// does not say. REQUIRES: draft.place.
Result<std::optional<Endpoint>> endpoint_of_place(Draft& draft);

// Fills spec.place. REQUIRES: spec.rendezvous is known.
Status tell_place(Draft& draft);

}  // namespace dtrun::cmd
