#include "agent/health/control_group.h"

#include <fstream>
#include <sstream>

namespace dtrun::agent {
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
  std::istringstream lines(cgroup);
  for (std::string line; std::getline(lines, line);) {
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
  std::istringstream lines(mountinfo);
  for (std::string line; std::getline(lines, line);) {
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

// A container sees its own part of the tree, mounted from `root` on.
fs::path folder_of(const std::string& path, const Mount& mount) {
  if (path == "/") return mount.point;
  if (mount.root == "/") return mount.point + path;
  if (path.starts_with(mount.root)) return mount.point + path.substr(mount.root.size());
  return mount.point;
}

}  // namespace

std::optional<ControlGroup> control_group(const std::string& controller, const std::string& cgroup,
                                          const std::string& mountinfo) {
  const auto hierarchy = hierarchy_of(controller, cgroup);
  if (!hierarchy) return std::nullopt;
  const auto mount = mount_of(controller, hierarchy->unified, mountinfo);
  if (!mount) return std::nullopt;
  return ControlGroup{folder_of(hierarchy->path, *mount), mount->point, hierarchy->unified};
}

std::string text_in(const fs::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace dtrun::agent
