#include "proto/core/control_group.h"

#include <optional>
#include <sstream>

#include "proto/core/text.h"

namespace dtrun {
namespace {

namespace fs = std::filesystem;

bool has_item(const std::string& list, const std::string& item) {
  return ("," + list + ",").find("," + item + ",") != std::string::npos;
}

struct Hierarchy {
  bool unified = false;
  std::string path;  // of the process
};

// "4:memory:/a/b", or "0::/a/b" of the unified hierarchy.
std::optional<Hierarchy> hierarchy_of(const std::string& controller, const std::string& cgroup) {
  std::optional<Hierarchy> found;
  for (const std::string& line : split(cgroup)) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (has_item(controllers, controller)) return Hierarchy{false, line.substr(second + 1)};
    if (controllers.empty()) found = Hierarchy{true, line.substr(second + 1)};
  }
  return found;
}

struct Mount {
  std::string root, point;
};

// "31 23 0:28 ROOT POINT OPTIONS [FIELDS…] - TYPE SOURCE SUPEROPTIONS"
std::optional<Mount> mount_of(const std::string& controller, bool unified, const std::string& mountinfo) {
  for (const std::string& line : split(mountinfo)) {
    const std::size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::istringstream head(line), tail(line.substr(dash + 3));
    std::string skipped, type, options;
    Mount mount;
    head >> skipped >> skipped >> skipped >> mount.root >> mount.point;
    tail >> type >> skipped >> options;
    if (unified ? type == "cgroup2" : type == "cgroup" && has_item(options, controller)) return mount;
  }
  return std::nullopt;
}

}  // namespace

// A container sees its own part of the tree, mounted from `root` on; what is outside of that it does not see.
std::vector<ControlGroup> control_groups(const std::string& controller, const std::string& cgroup,
                                         const std::string& mountinfo) {
  std::vector<ControlGroup> groups;
  const auto hierarchy = hierarchy_of(controller, cgroup);
  const auto mount = hierarchy ? mount_of(controller, hierarchy->unified, mountinfo) : std::nullopt;
  if (!mount) return groups;
  const fs::path root = mount->root;
  fs::path group = hierarchy->path;
  fs::path within = group.lexically_relative(root);
  if (within.empty() || *within.begin() == "..") group = root, within = ".";
  for (;; group = group.parent_path(), within = within.parent_path()) {
    const bool is_top = within.empty() || within == ".";
    groups.push_back(
        {is_top ? fs::path(mount->point) : mount->point / within, group.string(), hierarchy->unified});
    if (is_top) return groups;
  }
}

}  // namespace dtrun
