// The names of this node and of others, and the way from here to them. What cannot be found out stays
// unknown. Waits for the name service, and up to two seconds for who listens on the endpoint.
#pragma once

#include <string>
#include <vector>

#include "agent/core/job_spec.h"
#include "cmd/check/core/facts.h"

namespace dtrun::cmd {

void read_names(NodeFacts* facts);
void read_route(const std::string& host, int port, NodeFacts* facts);
// Who listens on the endpoint. `spec` has the key that opens it.
void read_listener(const std::string& host, int port, const JobSpec& spec, NodeFacts* facts);

// What the name of another host means here, or why it means nothing; empty: one of `own`, its addresses.
std::string wrong_meaning(const std::string& host, const std::vector<std::string>& own);

}  // namespace dtrun::cmd
