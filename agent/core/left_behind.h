// Messages to people about processes that a worker left behind. Pure.
#pragma once

#include <string>
#include <vector>

namespace dtrun::agent {

// "1 process that rank 0 left behind (rsync -a ckpt remote:)". `commands`: a command line for each.
// `worker`: "rank 0".
std::string left_behind_text(const std::vector<std::string>& commands, const std::string& worker);

}  // namespace dtrun::agent
