#include "worker/device/cuda/use.h"

#include <algorithm>

#include "proto/base/log.h"

namespace dtrun::worker::cuda {

void UseRecord::set(const std::string& part, const std::string& what) {
  std::lock_guard lock(mutex_);
  use_.parts[part] = what;
}

void UseRecord::fall_back(const std::string& sentence) {
  std::lock_guard lock(mutex_);
  if (std::ranges::find(use_.fallbacks, sentence) != use_.fallbacks.end()) return;
  use_.fallbacks.push_back(sentence);
  if (tells_) log_warn(sentence);
}

DeviceUse UseRecord::now() const {
  std::lock_guard lock(mutex_);
  return use_;
}

}  // namespace dtrun::worker::cuda
