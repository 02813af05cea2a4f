#include "cmd/machine/control_groups.h"

#include <fstream>

namespace dtrun::cmd {
namespace {

namespace fs = std::filesystem;

// A group without a file of either version limits nothing.
std::optional<CpuQuota> quota_of(const ControlGroup& group) {
  // "max" is no number.
  double quota = 0, period = 0;
  if (group.unified) {
    std::ifstream file(group.directory / "cpu.max");
    if (!(file >> quota >> period)) return std::nullopt;
  } else {
    std::ifstream quota_file(group.directory / "cpu.cfs_quota_us"),
        period_file(group.directory / "cpu.cfs_period_us");
    if (!(quota_file >> quota) || !(period_file >> period)) return std::nullopt;
  }
  if (quota <= 0 || period <= 0) return std::nullopt;
  return CpuQuota{.cpus = quota / period,
                  .by = std::string(group.unified ? "cpu.max" : "cpu.cfs_quota_us") +
                        " of its control group " + group.name};
}

}  // namespace

std::vector<ControlGroup> control_groups(const fs::path& root, const std::string& controller) {
  std::vector<ControlGroup> found;
  const auto add = [&](const fs::path& mount, fs::path group, bool unified) {
    for (;; group = group.parent_path()) {
      found.push_back({mount / group.relative_path(), group.string(), unified});
      if (!group.has_relative_path()) return;
    }
  };
  std::ifstream file(root / "proc/self/cgroup");
  // "4:cpu,cpuacct:/a/b" for version 1, "0::/a/b" for version 2.
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1),
                      group = line.substr(second + 1);
    const bool named = ("," + controllers + ",").find("," + controller + ",") != std::string::npos;
    if (controllers.empty()) add(root / "sys/fs/cgroup", group, true);
    // Most systems mount each controller under its own name too, where several are one hierarchy.
    if (named) add(root / "sys/fs/cgroup" / controller, group, false);
    if (named && controllers != controller) add(root / "sys/fs/cgroup" / controllers, group, false);
  }
  return found;
}

std::optional<CpuQuota> read_cpu_quota(const fs::path& root) {
  std::optional<CpuQuota> least;
  for (const ControlGroup& group : control_groups(root, "cpu")) {
    auto quota = quota_of(group);
    if (quota && (!least || quota->cpus < least->cpus)) least = std::move(quota);
  }
  return least;
}

}  // namespace dtrun::cmd
