// Tells whether the GPUs have let go of workers that ended. The driver frees a dead process' memory in its
// own time, and a replacement that begins before finds its GPU full. Pure.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "agent/core/gpu.h"
#include "proto/core/millis.h"

namespace dtrun::agent {

class GpuRelease {
 public:
  // The longest wait of a replacement.
  static constexpr Millis kLimit = 5000;

  // A worker has ended that may have computed on a GPU.
  void ended(int pid, Millis now) { ended_[pid] = now; }

  // A replacement must wait for an answer of the driver.
  bool waits() const { return !ended_.empty(); }

  struct Decision {
    bool start = false;  // now: there is nothing to wait for any more
    std::string note;    // for people, if the wait was for nothing
  };
  // The decision after the driver's answer; nothing: it does not answer, so a longer wait is useless.
  Decision look(const std::optional<GpuReading>& reading, Millis now);

 private:
  std::map<int, Millis> ended_;  // process id, and when it ended
};

}  // namespace dtrun::agent
