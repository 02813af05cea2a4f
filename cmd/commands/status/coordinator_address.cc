#include "cmd/commands/status/coordinator_address.h"

#include <set>

#include "agent/job_registry.h"
#include "proto/core/contract.h"
#include "rendezvous/wire/grpc_setup.h"

namespace dtrun::cmd {

std::string text_of(const Endpoint& endpoint) {
  return rendezvous::endpoint_text(endpoint.host, endpoint.port);
}

// Several agents of one host may take part in one job.
std::vector<CoordinatorAddress> local_addresses(const std::string& run_id) {
  std::vector<CoordinatorAddress> addresses;
  std::set<std::string> seen;
  for (const agent::RegisteredJob& job : agent::registered_jobs(agent::registry_folder())) {
    const Endpoint endpoint{job.host, job.port};
    const bool wanted = run_id.empty() || job.run_id == run_id;
    if (wanted && seen.insert(text_of(endpoint)).second)
      addresses.push_back({endpoint, job.has_key, job.key});
  }
  return addresses;
}

Result<std::vector<CoordinatorAddress>> addresses_of(const std::string& given, const std::string& run_id) {
  if (given.empty()) return local_addresses(run_id);
  if (rendezvous::unix_path(given)) return std::vector<CoordinatorAddress>{{{given, 0}, false}};
  ASSIGN_OR_RETURN(std::vector<Endpoint> endpoints,
                   parse_endpoints({given, "--rdzv_endpoint"}, kDefaultPort));
  std::vector<std::string> hosts;
  for (const Endpoint& one : endpoints) hosts.push_back(one.host);
  const Endpoint endpoint{rendezvous::list_text(hosts), endpoints.front().port};
  if (endpoint.port > 0) return std::vector<CoordinatorAddress>{{endpoint}};
  return usage("--rdzv_endpoint=" + given + ": expected a port from 1 to 65535");
}

std::optional<rendezvous::JobKey> key_for(const CoordinatorAddress& address,
                                          const std::optional<rendezvous::JobKey>& offered) {
  if (address.own_key.empty()) return address.wants_key ? offered : std::nullopt;
  const auto own = rendezvous::JobKey::parse(address.own_key, "the job's entry");
  return own.ok() ? std::optional(own.value()) : std::nullopt;
}

}  // namespace dtrun::cmd
