// The GPUs of this machine in its driver's view, read in this process.
#pragma once

#include <memory>

#include "agent/core/gpu.h"
#include "agent/gpu/nvml.h"

namespace dtrun::agent {

class GpuReader {
 public:
  // Reads by NVML, or from /proc if that library is missing. See Nvml::load for `library_path`.
  explicit GpuReader(const char* library_path);
  GpuReading read() const;

 private:
  std::string why_;  // NVML cannot be used
  std::unique_ptr<Nvml> nvml_;
};

}  // namespace dtrun::agent
