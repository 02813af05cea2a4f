// MASTER_PORT: bound by the agent from its start, so that no other process takes the port before rank 0's
// program listens on it.
#pragma once

#include "proto/base/descriptor.h"
#include "proto/core/status.h"

namespace dtrun::agent {

struct HeldPort {
  Descriptor socket;  // bound, never listening
  int port = 0;
};

// `port` 0: any free one. EX_UNAVAILABLE if another process has it.
Result<HeldPort> hold_port(int port);

}  // namespace dtrun::agent
