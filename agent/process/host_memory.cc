#include "agent/process/host_memory.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

#include "agent/process/spawn.h"

namespace dtrun::agent {

Result<int> HostMemory::of(int local_rank) {
  const auto index = static_cast<std::size_t>(local_rank);
  files_.resize(std::max(files_.size(), index + 1));
  Descriptor& file = files_[index];
  if (file.open()) return file.get();
  const Descriptor low(memfd_create(name_, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (low.open()) file.reset(fcntl(low.get(), F_DUPFD_CLOEXEC, kFirstSpareFd));
  if (!file.open()) return errno_status(kExitSoftware, "cannot make a file in memory", errno);
  return file.get();
}

}  // namespace dtrun::agent
