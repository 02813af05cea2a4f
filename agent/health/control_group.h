// The control group of a process, of either version, as this process sees its files.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace dtrun::agent {

struct ControlGroup {
  std::filesystem::path folder;  // of its files
  std::filesystem::path top;     // the outermost one that is to be seen from here
  bool unified = false;          // version 2

  bool operator==(const ControlGroup&) const = default;
};

// The group that `controller` ("memory", "cpu") has the process in; nothing if none is mounted. `cgroup`,
// `mountinfo`: the texts of /proc/PID/cgroup and /proc/self/mountinfo.
std::optional<ControlGroup> control_group(const std::string& controller, const std::string& cgroup,
                                          const std::string& mountinfo);

// All of a file; empty if it cannot be read.
std::string text_in(const std::filesystem::path& path);

}  // namespace dtrun::agent
