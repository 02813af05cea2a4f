#include "proto/core/control_group.h"

#include <doctest/doctest.h>

namespace dtrun::control_group_test {

using Groups = std::vector<ControlGroup>;

TEST_CASE("a process is in the group that the controller has it in, and in those around it") {
  const std::string mounts =
      "31 23 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
      "32 23 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
  const std::string top = "/sys/fs/cgroup/cpu,cpuacct";
  CHECK(control_groups("cpu", "5:memory:/m\n4:cpu,cpuacct:/a/b\n", mounts) ==
        Groups{{top + "/a/b", "/a/b"}, {top + "/a", "/a"}, {top, "/"}});
  CHECK(control_groups("cpu", "4:cpu,cpuacct:/\n", mounts) == Groups{{top, "/"}});
  CHECK(control_groups("cpu", "5:memory:/m\n", mounts).empty());
  CHECK(control_groups("cpu", "4:cpu,cpuacct:/a\n", "").empty());
}

TEST_CASE("a container sees its own part of the tree, as far as it can be seen from there") {
  const std::string mounts = "31 23 0:28 /pod /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
                    top = "/sys/fs/cgroup";
  CHECK(control_groups("cpu", "0::/pod/c\n", mounts) ==
        Groups{{top + "/c", "/pod/c", true}, {top, "/pod", true}});
  CHECK(control_groups("cpu", "0::/pod\n", mounts) == Groups{{top, "/pod", true}});
  CHECK(control_groups("cpu", "0::/podium/c\n", mounts) == Groups{{top, "/pod", true}});
  CHECK(control_groups("cpu", "0::/\n", mounts) == Groups{{top, "/pod", true}});
}

}  // namespace dtrun::control_group_test
