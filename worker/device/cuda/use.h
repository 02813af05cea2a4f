// What a GPU's lane, links and libraries turn out to be, as they find out.
#pragma once

#include <mutex>
#include <string>

#include "worker/core/device_use.h"

namespace dtrun::worker::cuda {

inline constexpr char kOwnKernels[] = "own kernels";

// Any thread.
class UseRecord {
 public:
  // `tells`: whether fallbacks are for people, too. All GPUs of a job are alike, so one of a host does.
  explicit UseRecord(bool tells) : tells_(tells) {}

  void set(const std::string& part, const std::string& what);
  // Once for each sentence.
  void fall_back(const std::string& sentence);
  DeviceUse now() const;

 private:
  const bool tells_;
  mutable std::mutex mutex_;
  DeviceUse use_;  // guarded by it
};

}  // namespace dtrun::worker::cuda
