// The connections on which a host that may lead asks the others: one to each, with a thread of its own, so
// that a host that does not answer delays no other.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "rendezvous/identity/job_key.h"
#include "rendezvous/wire/peers.h"

namespace dtrun::rendezvous {

// Makes the links to the other `hosts`, listed in order; `self` is this host's index. Each listens on one of
// `ports`. `list` goes with every ask, so that hosts with different lists refuse each other.
MakePeers peers_on(const std::vector<std::string>& hosts, int self, const std::vector<int>& ports,
                   const std::optional<JobKey>& key, const std::string& list);

}  // namespace dtrun::rendezvous
