// Out-of-memory kills: what the kernel's texts say, and a real one where this machine lets us make a control
// group.
#include "agent/health/oom.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "tests/agent/agent_process.h"
#include "tests/support/memory_group.h"
#include "tests/support/skip.h"

namespace dtrun::agent::test::oom_test {

namespace {

namespace fs = std::filesystem;

constexpr char kMounts[] =
    "25 1 0:22 / /proc rw - proc proc rw\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
    "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw\n";

void write(const fs::path& file, const std::string& text) { std::ofstream(file) << text; }
void append(const fs::path& file, const std::string& text) { std::ofstream(file, std::ios::app) << text; }

}  // namespace

TEST_CASE("the counter is read from each of the kernel's files") {
  CHECK(oom_kills("low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 0\n") == 2);
  CHECK(oom_kills("oom_kill_disable 0\nunder_oom 0\noom_kill 7\n") == 7);
  CHECK_FALSE(oom_kills("oom_kill_disable 0\nunder_oom 0\n").has_value());
  CHECK_FALSE(oom_kills("").has_value());
  CHECK_FALSE(oom_kills("oom_kill x\n").has_value());
}

TEST_CASE("the kernel's log names the victim") {
  CHECK(oom_victim("3,1234,5678,-;Out of memory: Killed process 4711 (python3) total-vm:1kB, anon-rss:2kB") ==
        4711);
  CHECK(oom_victim("3,1,2,-;Memory cgroup out of memory: Killed process 12 (a b) total-vm:1kB") == 12);
  CHECK_FALSE(oom_victim("6,1,2,-;usb 1-1: new device").has_value());
  CHECK_FALSE(oom_victim("3,1,2,-;Killed process (x)").has_value());
}

TEST_CASE("the counter lies in the control group of the process, of either version") {
  CHECK(oom_counter("4:memory:/job/a\n0::/\n", kMounts) == "/sys/fs/cgroup/memory/job/a/memory.oom_control");
  CHECK(oom_counter("9:name=systemd:/x\n0::/user/a\n", kMounts) ==
        "/sys/fs/cgroup/unified/user/a/memory.events");
  CHECK(oom_counter("", kMounts) == "/proc/vmstat");
  CHECK(oom_counter("0::/a\n", "25 1 0:22 / /proc rw - proc proc rw\n") == "/proc/vmstat");
}

TEST_CASE("in a container only its own part of the tree is mounted") {
  const std::string mounts = "35 31 0:32 /docker/1234 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
  CHECK(oom_counter("4:cpu,memory:/docker/1234\n", mounts) == "/sys/fs/cgroup/memory/memory.oom_control");
  CHECK(oom_counter("4:memory:/docker/1234/a\n", mounts) == "/sys/fs/cgroup/memory/a/memory.oom_control");
}

TEST_CASE("by the counter alone each kill explains one death, and what was before explains none") {
  Folder folder;
  const fs::path counter = folder.path() / "memory.events";
  write(counter, "oom_kill 5\n");
  OomWatch watch(counter, "");
  CHECK_FALSE(watch.killed(1));
  write(counter, "oom_kill 7\n");
  CHECK(watch.killed(1));
  CHECK(watch.killed(2));
  CHECK_FALSE(watch.killed(3));
  CHECK_FALSE(watch.killed_another());
  write(counter, "oom_kill 8\n");
  CHECK(watch.killed_another());
  CHECK_FALSE(watch.killed_another());
}

TEST_CASE("a kill of long ago explains no death") {
  using namespace std::chrono_literals;
  const Folder folder;
  const fs::path counter = folder.path() / "memory.events";
  write(counter, "oom_kill 0\n");
  OomWatch watch(counter, "");
  std::chrono::steady_clock::time_point now{1h};
  watch.forget_old(now);
  write(counter, "oom_kill 1\n");
  watch.forget_old(now += 29s);
  CHECK(watch.killed_another());
  write(counter, "oom_kill 2\n");
  watch.forget_old(now += 31s);
  watch.forget_old(now += 29s);
  CHECK(watch.killed_another());
  write(counter, "oom_kill 3\n");
  watch.forget_old(now += 31s);
  watch.forget_old(now += 31s);
  CHECK_FALSE(watch.killed_another());
}

TEST_CASE("the kernel's log tells which death it was") {
  Folder folder;
  const fs::path counter = folder.path() / "memory.events", log = folder.path() / "kmsg";
  write(counter, "oom_kill 0\n");
  write(log, "3,1,1,-;Out of memory: Killed process 7 (old)\n");
  OomWatch watch(counter, log);
  CHECK_FALSE(watch.killed(7));
  append(log, "3,2,2,-;Out of memory: Killed process 8 (new)\n");
  write(counter, "oom_kill 1\n");
  CHECK_FALSE(watch.killed(9));
  CHECK(watch.killed(8));
  CHECK_FALSE(watch.killed_another());  // the one that the counter saw is explained
}

TEST_CASE("a worker that the kernel kills for want of memory is reported as such" *
          doctest::test_suite("cgroup")) {
  const dtrun::test::MemoryGroup group(100 << 20);
  if (!group.there()) return dtrun::test::skip("no control group can be made here");
  const std::string shell = dtrun::test::shell_text({binary("test_worker"), "eat"}) + "; exit $?";
  const std::string loader = dtrun::test::shell_text({binary("test_worker"), "eat"}) + " & wait $! || exit 1";
  const std::pair<std::vector<std::string>, std::string> programs[] = {
      {agent_with({"--nproc", "2"}, {"eat"}), "signal 9 (SIGKILL): out of memory\n"},
      {agent({"--nproc", "2", "--", "/bin/sh", "-c", shell}), "exit code 137: out of memory\n"},
      {agent({"--nproc", "2", "--", "/bin/sh", "-c", loader}), "exit code 1: out of memory\n"}};
  for (const auto& [argv, ending] : programs) {
    Process job(group.with(argv));
    CHECK(job.wait() == (ending.starts_with("exit code 1:") ? 1 : 137));
    CHECK(job.err().find("failed first: " + ending) != std::string::npos);
  }
}

TEST_CASE("a plain kill -9 is not reported as want of memory") {
  Process other(agent_with({}, {"signal", std::to_string(SIGKILL)}));
  CHECK(other.wait() == 137);
  CHECK(other.err().find("failed first: signal 9 (SIGKILL)\n") != std::string::npos);
}

}  // namespace dtrun::agent::test::oom_test
