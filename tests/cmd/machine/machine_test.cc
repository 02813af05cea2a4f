#include "cmd/machine/machine.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <fstream>

namespace dtrun::machine_test {

using namespace dtrun::cmd;

namespace {

// A made-up file system, gone at the end.
class Root {
 public:
  Root() : path_(std::filesystem::temp_directory_path() / ("dtrun_machine_" + std::to_string(getpid()))) {
    std::filesystem::create_directories(path_);
  }
  ~Root() { std::filesystem::remove_all(path_); }
  const std::filesystem::path& path() const { return path_; }

  void put(const std::string& name, const std::string& text) {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name) << text << "\n";
  }
  void put_cpu(int id, int package, const std::string& siblings, const std::string& l3) {
    const std::string dir = "sys/devices/system/cpu/cpu" + std::to_string(id) + "/";
    put(dir + "topology/physical_package_id", std::to_string(package));
    put(dir + "topology/thread_siblings_list", siblings);
    put_cache(dir + "cache/index0/", "1", "Data", siblings);
    put_cache(dir + "cache/index1/", "4", "Instruction", "0-7");
    put_cache(dir + "cache/index2/", "3", "Unified", l3);
  }

 private:
  void put_cache(const std::string& dir, const std::string& level, const std::string& type,
                 const std::string& shared) {
    put(dir + "level", level);
    put(dir + "type", type);
    put(dir + "shared_cpu_list", shared);
  }
  std::filesystem::path path_;
};

}  // namespace

TEST_CASE(
    "a program of a virtual environment takes the environment's Python, unless a tool has it for itself") {
  Root root;
  const std::filesystem::path program = root.path() / "bin/dtrun", python = root.path() / "bin/python3";
  root.put("bin/python3", "");
  CHECK(venv_python(program).empty());
  root.put("pyvenv.cfg", "home = /usr/bin");
  CHECK(venv_python(program).empty());  // no program yet
  std::filesystem::permissions(python, std::filesystem::perms::owner_all);
  CHECK(venv_python(program) == python.string());
  for (const char* receipt : {"pipx_metadata.json", "uv-receipt.toml"}) {
    root.put(receipt, "");
    CHECK_MESSAGE(venv_python(program).empty(), receipt);
    std::filesystem::remove(root.path() / receipt);
  }
  CHECK(venv_python("").empty());
}

TEST_CASE("a CPU list is ranges and numbers") {
  CHECK(parse_cpu_list("0-2,4,6-7") == std::set<int>{0, 1, 2, 4, 6, 7});
  CHECK(parse_cpu_list("3") == std::set<int>{3});
  CHECK(parse_cpu_list("").empty());
}

TEST_CASE("the topology comes from /sys, for the CPUs that may be used") {
  Root root;
  root.put("sys/devices/system/node/node0/cpulist", "0,2");
  root.put("sys/devices/system/node/node1/cpulist", "1,3");
  root.put("sys/devices/system/node/possible", "0-1");
  root.put_cpu(1, 1, "1,3", "1,3");
  root.put_cpu(2, 0, "0,2", "0-3");
  const auto cpus = read_topology(root.path(), {1, 2});
  REQUIRE(cpus.size() == 2);
  CHECK(cpus[0].node == 1);
  CHECK(cpus[0].package == 1);
  CHECK(cpus[0].core == 1);
  CHECK(cpus[0].cache == 1);
  CHECK(cpus[1].node == 0);
  CHECK(cpus[1].core == 0);
  CHECK(cpus[1].cache == 0);
}

TEST_CASE("without /sys every CPU is a core of its own on one node") {
  Root root;
  const auto cpus = read_topology(root.path(), {0, 5});
  REQUIRE(cpus.size() == 2);
  CHECK(cpus[1].core == 5);
  CHECK(cpus[1].node == 0);
}

TEST_CASE("this machine has CPUs, each with its place") {
  const Machine machine = this_machine();
  CHECK(machine.cpus >= 1);
  CHECK(static_cast<int>(machine.topology.size()) >= machine.cpus);
}

TEST_CASE("memory that can be had is the kernel's number, or what control groups leave if that is less") {
  Root root;
  CHECK_FALSE(read_available_memory(root.path()));
  root.put("proc/meminfo", "MemTotal:  9000 kB\nMemAvailable:    4000 kB");
  CHECK(read_available_memory(root.path())->bytes == 4000 * 1024);
  CHECK(read_available_memory(root.path())->by == "MemAvailable in /proc/meminfo");

  // Version 2: the group above allows less than the process's own, and half of what it uses are files.
  root.put("proc/self/cgroup", "0::/job/task");
  root.put("proc/self/mountinfo",
           "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
           "32 23 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory");
  root.put("sys/fs/cgroup/job/task/memory.max", "max");
  root.put("sys/fs/cgroup/job/task/memory.current", "600000");
  root.put("sys/fs/cgroup/job/memory.max", "3000000");
  root.put("sys/fs/cgroup/job/memory.current", "2000000");
  root.put("sys/fs/cgroup/job/memory.stat", "anon 1000000\nactive_file 5\ninactive_file 900000");
  CHECK(read_available_memory(root.path())->bytes == 1900000);
  CHECK(read_available_memory(root.path())->by == "memory.max of its control group /job");

  // Version 1, whose limit is a huge number where there is none.
  root.put("proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:/a\n0::/");
  root.put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712");
  root.put("sys/fs/cgroup/memory/memory.usage_in_bytes", "5000");
  root.put("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1000000");
  root.put("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "1200000");
  root.put("sys/fs/cgroup/memory/a/memory.stat", "total_inactive_file 300000");
  CHECK(read_available_memory(root.path())->bytes == 100000);
  CHECK(read_available_memory(root.path())->by == "memory.limit_in_bytes of its control group /a");
}

}  // namespace dtrun::machine_test
