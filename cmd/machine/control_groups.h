// The limits of the control groups that this process is in: a container's limits are there, and nowhere else.
// Both versions of control groups.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "proto/core/control_group.h"

namespace dtrun::cmd {

// This process's group of a controller ("memory", "cpu") and all groups around it. `root` stands for "/".
std::vector<ControlGroup> control_groups(const std::filesystem::path& root, const std::string& controller);

struct CpuQuota {
  double cpus = 0;  // processor time per time
  std::string by;   // "cpu.max of its control group /kubepods"
};
// The least of all groups; nothing if there is no limit.
std::optional<CpuQuota> read_cpu_quota(const std::filesystem::path& root);

}  // namespace dtrun::cmd
