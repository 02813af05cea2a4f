// NVIDIA's management library, loaded at run time: it asks the driver and opens no GPU for computing. Its
// calls may take long, and on a broken driver for ever, so the agent leaves them to a process of its own
// (gpu_observer.h).
#pragma once

#include <memory>
#include <string>

#include "agent/core/gpu.h"

namespace dtrun::agent {

class Nvml {
 public:
  static constexpr char kMissing[] = "no NVIDIA driver";

  // Looks for libnvidia-ml.so.1 in the folders of `path` (separated by colons; null: none), then where the
  // loader does. Null if it is not there (`why` is kMissing) or does
  // not start.
  static std::unique_ptr<Nvml> load(const char* path, std::string* why);
  ~Nvml();
  Nvml(const Nvml&) = delete;

  // Reads everything anew. Values that the driver does not tell stay unknown.
  GpuReading read() const;

 private:
  struct Table;
  explicit Nvml(std::unique_ptr<Table> table);
  PhysicalGpu read_gpu(unsigned index) const;

  const std::unique_ptr<Table> table_;
};

}  // namespace dtrun::agent
