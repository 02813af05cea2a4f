// Records the implementations that a GPU's lane and links turn out to use.
#pragma once

#include <mutex>
#include <string>

#include "worker/core/device_use.h"

namespace dtrun::worker::cuda {

inline constexpr char kOwnKernels[] = "own kernels";

// Any thread.
class UseRecord {
 public:
  // `tells`: whether fallbacks are also shown to people. One GPU of a host suffices, since all GPUs of a job
  // are of one kind.
  explicit UseRecord(bool tells) : tells_(tells) {}

  void set(const std::string& part, const std::string& what);
  // Shows each sentence once.
  void fall_back(const std::string& sentence);
  DeviceUse now() const;

 private:
  const bool tells_;
  mutable std::mutex mutex_;
  DeviceUse use_;  // guarded by it
};

}  // namespace dtrun::worker::cuda
