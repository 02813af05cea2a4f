// Where the coordinators of runs are, for commands that ask one: `dtrun status`, `dtrun trace`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cmd/options/values.h"
#include "proto/core/status.h"
#include "rendezvous/identity/job_key.h"

namespace dtrun::cmd {

// The endpoint to ask, and the way to ask it.
struct CoordinatorAddress {
  Endpoint endpoint;
  bool wants_key = true;
  std::string own_key = {};  // the job's alone; empty: the asker's will do
};

std::string text_of(const Endpoint& endpoint);

// Those of this user's jobs that have an agent on this host; of run `run_id` unless that is empty.
std::vector<CoordinatorAddress> local_addresses(const std::string& run_id);

// As --rdzv_endpoint names it; without one, local_addresses().
Result<std::vector<CoordinatorAddress>> addresses_of(const std::string& endpoint, const std::string& run_id);

// `offered`: the asker's key.
std::optional<rendezvous::JobKey> key_for(const CoordinatorAddress& address,
                                          const std::optional<rendezvous::JobKey>& offered);

}  // namespace dtrun::cmd
