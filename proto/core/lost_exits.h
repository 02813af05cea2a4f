// The exit codes of a lost process, by which Kubernetes, and other systems that start another one in its
// place, tell that it was lost (configs/cluster/kubernetes.yaml.in).
#pragma once

#include "proto/core/exit_codes.h"

namespace dtrun {

// 137: SIGKILL; 143: SIGTERM; 255: the node was started anew, as a kubelet has it.
inline constexpr int kLostExits[] = {kExitUnavailable, kExitStartAgain, 137, 143, 255};

// The code to end with for a worker's own exit code once restarts are used up: 1 if it would count as a loss.
int exit_code_where_replaced(int exit_code);

}  // namespace dtrun
