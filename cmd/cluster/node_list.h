// Slurm's lists of nodes, and of numbers for them. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "proto/core/status.h"

namespace dtrun::cmd {

// "n[1-3,007-010],rack[1-2]n[0-3]" as a list, like `scontrol show hostnames`, which containers lack: in
// order, zeros kept, a node that is named twice twice. EX_USAGE if it is misspelt, or has more than kMaxNodes
// nodes.
Result<std::vector<std::string>> parse_node_list(std::string_view list);

// "2(x3),1" as 2, 2, 2, 1. EX_USAGE as above.
Result<std::vector<int>> parse_counts(std::string_view list);

}  // namespace dtrun::cmd
