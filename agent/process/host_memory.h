// Memory for copies of the workers' trained state: a file without a name (memfd) for each of this node's
// workers, which its replacement gets too. So it outlives them all, and ends with this agent.
#pragma once

#include <vector>

#include "agent/system/descriptor.h"
#include "proto/core/status.h"

namespace dtrun::agent {

class HostMemory {
 public:
  // The worker's own, empty until it writes there; made on the first call. EX_SOFTWARE if there can be none.
  Result<int> of(int local_rank);

 private:
  std::vector<Descriptor> files_;  // by local rank
};

}  // namespace dtrun::agent
