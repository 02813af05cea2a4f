// A named span of the host's time, for tools that show it beside what a device does (Nsight Systems). Costs
// next to nothing unless such a tool runs, and nothing on the CPU.
#pragma once

#include "worker/device/device.h"

namespace dtrun::worker {

// The span from construction to the end of the scope, on this thread. REQUIRES: `name` lives as long as the
// program.
class Range {
 public:
  Range(Device& device, const char* name) : device_(device) { device_.enter_range(name); }
  ~Range() { device_.leave_range(); }
  Range(const Range&) = delete;

 private:
  Device& device_;
};

}  // namespace dtrun::worker
