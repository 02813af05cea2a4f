#include "cmd/machine/control_groups.h"

#include <fstream>

#include "proto/base/text_in.h"

namespace dtrun::cmd {
namespace {

namespace fs = std::filesystem;

// A group without a file of either version limits nothing.
std::optional<CpuQuota> quota_of(const ControlGroup& group) {
  // "max" is no number.
  double quota = 0, period = 0;
  if (group.unified) {
    std::ifstream file(group.folder / "cpu.max");
    if (!(file >> quota >> period)) return std::nullopt;
  } else {
    std::ifstream quota_file(group.folder / "cpu.cfs_quota_us"),
        period_file(group.folder / "cpu.cfs_period_us");
    if (!(quota_file >> quota) || !(period_file >> period)) return std::nullopt;
  }
  if (quota <= 0 || period <= 0) return std::nullopt;
  return CpuQuota{.cpus = quota / period,
                  .by = std::string(group.unified ? "cpu.max" : "cpu.cfs_quota_us") +
                        " of its control group " + group.name};
}

}  // namespace

std::vector<ControlGroup> control_groups(const fs::path& root, const std::string& controller) {
  std::vector<ControlGroup> groups = dtrun::control_groups(controller, text_in(root / "proc/self/cgroup"),
                                                           text_in(root / "proc/self/mountinfo"));
  for (ControlGroup& group : groups) group.folder = root / group.folder.relative_path();
  return groups;
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
