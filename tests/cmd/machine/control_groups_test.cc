#include "cmd/machine/control_groups.h"

#include <doctest/doctest.h>

#include <fstream>

#include "tests/support/folder.h"

namespace dtrun::control_groups_test {

using namespace dtrun::cmd;

namespace {

class GroupFiles {
 public:
  void put(const std::string& name, const std::string& text) {
    const std::filesystem::path file = path() / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
  }
  const std::filesystem::path& path() const { return folder_.path(); }
  double cpus() const {
    const auto quota = read_cpu_quota(path());
    return quota ? quota->cpus : 0;
  }

 private:
  dtrun::test::Folder folder_;
};

constexpr char kUnified[] = "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw";

}  // namespace

TEST_CASE("version 2: the smallest quota up the tree counts, and max is none") {
  GroupFiles root;
  CHECK_FALSE(read_cpu_quota(root.path()));
  root.put("proc/self/cgroup", "0::/pod/task");
  CHECK_FALSE(read_cpu_quota(root.path()));
  root.put("proc/self/mountinfo", kUnified);
  root.put("sys/fs/cgroup/pod/task/cpu.max", "max 100000");
  CHECK_FALSE(read_cpu_quota(root.path()));
  root.put("sys/fs/cgroup/pod/cpu.max", "250000 100000");
  CHECK(root.cpus() == 2.5);
  CHECK(read_cpu_quota(root.path())->by == "cpu.max of its control group /pod");
  root.put("sys/fs/cgroup/pod/task/cpu.max", "400000 100000");
  CHECK(root.cpus() == 2.5);
  // What a container sees as the root is its own group, and has a limit.
  root.put("sys/fs/cgroup/cpu.max", "50000 100000");
  CHECK(root.cpus() == 0.5);
}

TEST_CASE("version 1: -1 is no quota, and other controllers' files count for nothing") {
  GroupFiles root;
  root.put("proc/self/mountinfo",
           "31 23 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct");
  root.put("proc/self/cgroup", "9:name=systemd:/\n4:cpu,cpuacct:/a/b\n2:cpuset:/c");
  root.put("sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_quota_us", "-1");
  root.put("sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_period_us", "100000");
  CHECK_FALSE(read_cpu_quota(root.path()));
  root.put("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "600000");
  CHECK_FALSE(read_cpu_quota(root.path()));  // a quota of no period
  root.put("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "200000");
  CHECK(root.cpus() == 3);
  CHECK(read_cpu_quota(root.path())->by == "cpu.cfs_quota_us of its control group /a");
  root.put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "100000");
  root.put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "50000");
  CHECK(root.cpus() == 2);
  root.put("sys/fs/cgroup/cpuset/c/cpu.cfs_quota_us", "1");
  root.put("sys/fs/cgroup/cpuset/c/cpu.cfs_period_us", "1");
  CHECK(root.cpus() == 2);
}

TEST_CASE("files that make no sense limit nothing") {
  GroupFiles root;
  root.put("proc/self/cgroup", "nonsense\n0::/a\n:\n");
  root.put("proc/self/mountinfo", std::string("nonsense\n") + kUnified);
  for (const char* text : {"", "x y", "0 100000", "100000 0", "-5 100000", "100000", "nan nan"}) {
    root.put("sys/fs/cgroup/a/cpu.max", text);
    CHECK_MESSAGE(!read_cpu_quota(root.path()), text);
  }
}

}  // namespace dtrun::control_groups_test
