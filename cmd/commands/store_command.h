// `dtrun store`: coordinator and store on a host of their own, so that no agent is special.
#pragma once

#include <string>
#include <vector>

namespace dtrun::cmd {

// `arguments`: what follows "store". The exit code of the contract.
int run_store(const std::vector<std::string>& arguments);

}  // namespace dtrun::cmd
