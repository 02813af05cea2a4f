// The ports on which the coordinator of a cluster's job may be: a row that follows from the job, tried in
// order by the host and by all others. Two jobs rarely have the same row; if they do, or if another program
// has a port of it, key and run id tell them apart and the next port is tried. Pure.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace dtrun::cmd {

// Below the ports of outgoing connections, and beside the usual one (29400) and those of Kubernetes' nodes.
inline constexpr int kFirstPort = 10240;
inline constexpr int kPortsInRow = 8;
inline constexpr int kPortRows = 2048;

std::vector<int> port_row(std::uint64_t number);  // the numbers of neighbours have neighbouring rows
std::vector<int> port_row(std::string_view name);

}  // namespace dtrun::cmd
