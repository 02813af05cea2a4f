// Nodes and clusters in order, for tests that spoil one thing.
#pragma once

#include <string>
#include <vector>

#include "cmd/check/core/facts.h"
#include "cmd/check/core/report.h"

namespace dtrun::cmd {

NodeFacts healthy_node(int number = 1);  // "node1", 10.0.0.11
ClusterFacts healthy_cluster(int nodes);

// "open files", "CPUs": the checks that did not pass.
std::vector<std::string> troubles(const std::vector<Finding>& findings);
// The one finding of this check that did not pass. REQUIRES: there is one.
Finding trouble(const std::vector<Finding>& findings, const std::string& check);

}  // namespace dtrun::cmd
