// The checks of one node, what can stop dtrun there or slow it down, and those between the nodes of a job.
#pragma once

#include <string>
#include <vector>

#include "cmd/check/core/facts.h"
#include "cmd/check/core/report.h"

namespace dtrun::cmd {

// In the order of the table in node_findings.cc. A check whose facts are not known is left out.
std::vector<Finding> findings_of(const NodeFacts& facts);

// Of a launch too, which tells nothing else that only warns.
Finding shared_memory(const NodeFacts& facts);

// Each node's own findings, those that are alike as one, then those between nodes.
Report cluster_report(const ClusterFacts& cluster);

// The paths of one node, by the other's rank, that carry less than most nodes' best ones do and deserve
// another look: the slowest of those that would be named, and two of which nothing is known since a processor
// held them up. `best`: the rate of each node's best path, -1 if not known.
std::vector<int> slow_paths(const std::vector<PathFacts>& paths, const std::vector<double>& best);

// "node3" of each node; those that share a host are told apart by rank: "node3 (rank 1)".
std::vector<std::string> names_of(const std::vector<NodeFacts>& nodes);

}  // namespace dtrun::cmd
