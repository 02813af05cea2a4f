// Memory that outlives the workers: a file without a name (memfd) for each of this node's workers, which its
// replacement gets too. It ends with this agent.
#pragma once

#include <cstddef>
#include <vector>

#include "proto/base/descriptor.h"
#include "proto/core/status.h"

namespace dtrun::agent {

class HostMemory {
 public:
  // `name`: for people who look at open files.
  explicit HostMemory(const char* name) : name_(name) {}

  // The worker's own, empty until something is written there; made on the first call. EX_SOFTWARE if there
  // can be none.
  Result<int> of(int local_rank);

 private:
  const char* const name_;
  std::vector<Descriptor> files_;  // by local rank
};

// Makes a part of a file in memory zero, and gives its pages back. EX_SOFTWARE if that cannot be done.
Status clear_memory(int file, std::size_t begin, std::size_t bytes);

}  // namespace dtrun::agent
