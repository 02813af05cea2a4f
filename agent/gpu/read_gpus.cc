#include "agent/gpu/read_gpus.h"

#include "agent/gpu/proc_gpus.h"

namespace dtrun::agent {

GpuReader::GpuReader(const char* library_path) : nvml_(Nvml::load(library_path, &why_)) {}

GpuReading GpuReader::read() const {
  if (nvml_ != nullptr) return nvml_->read();
  // A library that does not start (it is of another version than the kernel's module, say) means that CUDA
  // does not either.
  if (why_ != Nvml::kMissing) return {.gpus = {}, .failure = why_};
  return gpus_in_proc("/");
}

}  // namespace dtrun::agent
