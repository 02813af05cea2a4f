// NVIDIA's GPUs from the kernel's files, for use if the driver's library is missing.
#pragma once

#include <filesystem>

#include "agent/core/gpu.h"

namespace dtrun::agent {

// `root` stands for "/". GPUs without a device file are left out: a container has only those of its own.
GpuReading gpus_in_proc(const std::filesystem::path& root);

// The NUMA node of the device at this PCI address, -1 if it is not known.
int numa_node_of(const std::filesystem::path& root, const std::string& pci);

}  // namespace dtrun::agent
