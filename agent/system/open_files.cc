#include "agent/system/open_files.h"

#include <sys/resource.h>

#include <algorithm>
#include <string>

#include "proto/core/exit_codes.h"

namespace dtrun::agent {
namespace {

// An agent without workers has about 20 open, and a few more while it starts a process or connects.
constexpr rlim_t kOwn = 40;
constexpr rlim_t kPerWorker = 6;
constexpr rlim_t kUnauthenticatedFiles = 512;

}  // namespace

Result<std::size_t> allow_open_files(int workers, int nodes) {
  const rlim_t needed = kOwn + kPerWorker * static_cast<rlim_t>(workers);
  const rlim_t known = needed + static_cast<rlim_t>(nodes), wanted = known + kUnauthenticatedFiles;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return std::size_t{0};
  if (limit.rlim_max < needed) {
    return Status(kExitOsError, "only " + std::to_string(limit.rlim_max) +
                                    " files may be open at once (ulimit -n), and " + std::to_string(workers) +
                                    (workers == 1 ? " worker needs " : " workers need ") +
                                    std::to_string(needed) + "; raise the limit");
  }
  if (limit.rlim_cur < wanted) {
    limit.rlim_cur = std::min(wanted, limit.rlim_max);
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) return std::size_t{0};
  }
  return std::min(kUnauthenticatedFiles, limit.rlim_cur - std::min(limit.rlim_cur, known));
}

void allow_all_open_files() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace dtrun::agent
