// The checks between the nodes of a job.
#pragma once

#include <string>
#include <vector>

#include "cmd/doctor/core/facts.h"
#include "cmd/doctor/core/finding.h"
#include "cmd/doctor/core/matrix.h"

namespace dtrun::doctor {

// Each node's own findings, those that are alike as one, then those between nodes.
Report cluster_report(const ClusterFacts& cluster);

// Pairs whose bandwidth or round trip would be named: they are measured once more, alone, since nobody should
// be blamed for what a busy moment did. At most `most`, the worst first.
std::vector<Pair> doubtful_pairs(const ClusterFacts& cluster, std::size_t most);

// The better of two looks at one path.
void take_better(PathFacts& path, const PathFacts& again);

// "node3" of each node; those that share a host are told apart by rank: "node3 (rank 1)".
std::vector<std::string> names_of(const ClusterFacts& cluster);

}  // namespace dtrun::doctor
