#include "agent/system/resource_limits.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "proto/base/memory_limit.h"
#include "proto/core/exit_codes.h"

namespace dtrun::agent {
namespace {

// An agent without workers has about 20 open, and a few more while it starts a process or connects.
constexpr rlim_t kOwn = 40;
constexpr rlim_t kPerWorker = 6;
constexpr rlim_t kUnauthenticatedFiles = 512;

constexpr std::size_t kKibi = 1 << 10, kMebi = 1 << 20, kHeap = 32 * kMebi;
// gRPC's threads end by SIGSEGV with 64 KiB.
constexpr std::size_t kLeastStack = 256 * kKibi;

// The threads of an agent that hosts the coordinator. gRPC 1.51 starts up to 32 for its events and up to 16
// for callbacks, by the number of processors; the others are its timers and resolvers, and ours.
std::size_t most_threads() {
  const long processors = sysconf(_SC_NPROCESSORS_CONF);
  return static_cast<std::size_t>(10 + std::clamp(processors, 2L, 32L) + std::clamp(processors / 2, 2L, 16L));
}

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

Status check_memory_limit() {
  const std::uint64_t stack = stack_of_a_thread();
  if (stack < kLeastStack) {
    return Status(kExitOsError, "the limit on stacks of " + std::to_string(stack / kKibi) +
                                    " KiB (ulimit -s) is too low for dtrun's threads, which need " +
                                    std::to_string(kLeastStack / kKibi) + " KiB; raise the limit");
  }
  const auto limit = memory_limit();
  if (!limit) return Status();
  share_heap_under_limit();
  const std::size_t needed = most_threads() * stack + kHeap;
  void* const all = mmap(nullptr, needed, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (all == MAP_FAILED) {
    return Status(kExitOsError, "the limit on memory of " + std::to_string(*limit / kMebi) +
                                    " MiB (ulimit -v) leaves no " + std::to_string(needed / kMebi) +
                                    " MiB for dtrun's threads; raise the limit");
  }
  munmap(all, needed);
  return Status();
}

}  // namespace dtrun::agent
