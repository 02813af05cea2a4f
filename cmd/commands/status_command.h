// `dtrun status`: who is where, doing what.
#pragma once

#include <string>
#include <vector>

#include "cmd/options/options.h"

namespace dtrun::cmd {

// `arguments`: what follows "status". The exit code of the contract.
int run_status(const std::vector<std::string>& arguments, const Environment& environment);

}  // namespace dtrun::cmd
