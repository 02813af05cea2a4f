// A named span of the host's time, for `dtrun trace`, and for tools that show it beside what a device does
// (Nsight Systems). Costs next to nothing unless one of them runs.
#pragma once

#include "worker/base/operation_log.h"
#include "worker/device/device.h"

namespace dtrun::worker {

// The span from construction to the end of the scope, on this thread.
class Range {
 public:
  Range(Device& device, Operation::Kind kind) : device_(device), span_(kind) {
    device_.enter_range(name_of(kind));
  }
  ~Range() { device_.leave_range(); }
  Range(const Range&) = delete;

 private:
  Device& device_;
  const OperationLog::Span span_;
};

}  // namespace dtrun::worker
