// The errors that NVIDIA's kernel module has reported, from the kernel's log.
#pragma once

#include <filesystem>
#include <vector>

#include "agent/core/gpu_trouble.h"
#include "proto/base/descriptor.h"

namespace dtrun::agent {

class XidLog {
 public:
  // `kernel_log`: /dev/kmsg; often only root may read it, and then nothing is ever found.
  explicit XidLog(const std::filesystem::path& kernel_log);

  // All since this object was made, oldest first.
  const std::vector<Xid>& read();

 private:
  Descriptor log_;
  std::vector<Xid> found_;
};

}  // namespace dtrun::agent
