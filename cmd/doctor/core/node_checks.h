// The checks of one node.
#pragma once

#include <string>
#include <vector>

#include "cmd/doctor/core/facts.h"
#include "cmd/doctor/core/finding.h"

namespace dtrun::doctor {

// In the order of the table in node_checks.cc. A check whose facts are not known is left out.
std::vector<Finding> check_node(const NodeFacts& facts);

// "this node (node2)"
Section node_section(const NodeFacts& facts);

}  // namespace dtrun::doctor
