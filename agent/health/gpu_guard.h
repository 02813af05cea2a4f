// Watches the GPUs of this node's workers: finds their part in a worker's failure, and makes replacements
// wait until the GPUs have let go of workers that ended.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "agent/core/gpu_release.h"
#include "agent/core/gpu_trouble.h"
#include "agent/health/gpu_observer.h"
#include "agent/health/xid_log.h"
#include "agent/system/loop.h"

namespace dtrun::agent {

class GpuGuard {
 public:
  // `command`, `started`: see GpuObserver. Without a command it does nothing, and nothing waits for it.
  GpuGuard(Loop& loop, std::vector<std::string> command, std::vector<std::string> environment,
           const std::filesystem::path& kernel_log, std::function<void(pid_t)> started);
  ~GpuGuard() { rest(); }
  GpuGuard(const GpuGuard&) = delete;

  // The job begins: takes down how the GPUs are.
  void begin();

  // The trouble that the kernel's log reports of the GPU at this PCI address (empty: of any), or if it
  // reports none, the driver; see gpu_trouble(). Calls `done` within a second, or at once.
  void explain(const std::string& pci, std::function<void(std::string trouble)> done);

  // The newest reading, seconds old at most while this is called with each heartbeat; empty as long as the
  // driver has not answered.
  const GpuReading& look_now_and_then(Loop::Clock::time_point now);

  // A worker that ran has ended.
  void ended(pid_t pid);
  // Calls `start` once no GPU has memory of a worker that ended, or at once. `note`: for people, may be
  // empty. REQUIRES: the last `start` was called.
  void when_free(std::function<void(const std::string& note)> start);

  // The job ends.
  void rest();

 private:
  void look();
  void looked(const std::optional<GpuReading>& reading);

  const bool watches_;
  GpuObserver observer_;
  XidLog xids_;
  GpuReading before_, newest_;  // as the job began, and now
  Loop::Clock::time_point asked_at_;
  GpuRelease release_;
  std::function<void(const std::string&)> start_;
  bool looking_ = false;
  Timer timer_;
};

}  // namespace dtrun::agent
