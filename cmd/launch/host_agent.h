// The far end of a launch over ssh: `dtrun agent` on each host. It takes one job from its standard input,
// looks whether the job can run here, and runs this node's part of it (proto/launch.proto).
#pragma once

#include "proto/core/times.h"

namespace dtrun::cmd {

// On standard input and output, which nothing else may use from then on. The exit code of the contract.
int run_host_agent(const Times& times);

}  // namespace dtrun::cmd
