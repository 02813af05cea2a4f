// The control groups of a process, of either version, as this process sees their files. Pure.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace dtrun {

struct ControlGroup {
  std::filesystem::path folder;  // of its files
  std::string name;              // "/kubepods/pod1", as the process is told
  bool unified = false;          // version 2

  bool operator==(const ControlGroup&) const = default;
};

// The group that `controller` ("memory", "cpu") has the process in, and those around it that are to be seen
// from here, from the inner one on; none if none is mounted. `cgroup`, `mountinfo`: the texts of
// /proc/PID/cgroup and /proc/self/mountinfo. Each of them has limits of its own.
std::vector<ControlGroup> control_groups(const std::string& controller, const std::string& cgroup,
                                         const std::string& mountinfo);

}  // namespace dtrun
