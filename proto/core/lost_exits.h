// How a process ends that was lost, to what starts another one in its place, as Kubernetes does: it tells by
// the exit code (configs/cluster/kubernetes.yaml.in).
#pragma once

#include "proto/core/exit_codes.h"

namespace dtrun {

// 137: SIGKILL; 143: SIGTERM; 255: the node was started anew, as a kubelet has it.
inline constexpr int kLostExits[] = {kExitUnavailable, kExitStartAgain, 137, 143, 255};

// What a worker's own exit code is passed on as there once restarts are used up: as no loss.
int exit_code_where_replaced(int exit_code);

}  // namespace dtrun
