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

Status clear_memory(int file, std::size_t begin, std::size_t bytes) {
  if (fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(begin),
                static_cast<off_t>(bytes)) == 0)
    return {};
  return errno_status(kExitSoftware, "cannot clear a file in memory", errno);
}

}  // namespace dtrun::agent
