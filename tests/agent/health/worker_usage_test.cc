// The kernel's account of workers: real processes, and texts of the kernel's files.
#include "agent/health/worker_usage.h"

#include <doctest/doctest.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include "tests/agent/agent_process.h"

namespace dtrun::agent::test::worker_usage_test {

namespace {

// Looks again once a second, as heartbeats do, on a clock of its own.
class Looks {
 public:
  explicit Looks(pid_t leader) : leader_(leader) {}
  WorkerUsage operator()() {
    now_ += std::chrono::seconds(1);
    return usages_.look({leader_, 0}, now_).at(leader_);
  }

 private:
  WorkerUsages usages_;
  pid_t leader_;
  WorkerUsages::Clock::time_point now_ = WorkerUsages::Clock::now();
};

}  // namespace

TEST_CASE("the wait for a CPU is read from a schedstat") {
  CHECK(run_delay("8000000 455000000 120\n") == 455000000);
  CHECK(run_delay("") == 0);
  CHECK(run_delay("8000000") == 0);
}

TEST_CASE("a worker's account has its descendants, and does not fall when they end") {
  const Folder folder;
  const std::string enough = folder / "enough";
  Process shell(
      {"/bin/sh", "-c", "(sh -c 'until [ -e " + enough + " ]; do :; done'); echo gone; exec sleep 100"});
  const pid_t leader = getpgid(shell.pid());
  Looks look(leader);
  CHECK(eventually([&] { return look().cpu > 0.2; }));
  const WorkerUsage busy = look();
  CHECK(busy.resident_bytes > 100'000);
  CHECK(busy.read_bytes > 0);
  dtrun::test::write_text(enough, "");
  REQUIRE(shell.wait_for_out("gone"));
  const WorkerUsage after = look();
  CHECK(after.cpu >= busy.cpu);
  CHECK(after.cpu_wait >= busy.cpu_wait);
  CHECK(after.read_bytes >= busy.read_bytes);
  CHECK(eventually([&] { return look().resident_bytes < busy.resident_bytes; }));
}

TEST_CASE("of two processes that want one core each waits for it about as long as it runs") {
  cpu_set_t all, one;
  REQUIRE(sched_getaffinity(0, sizeof all, &all) == 0);
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu)
    if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
  REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
  Process first({"/bin/sh", "-c", "while :; do :; done"}), second({"/bin/sh", "-c", "while :; do :; done"});
  sched_setaffinity(0, sizeof all, &all);
  Looks look(getpgid(first.pid())), look_at_second(getpgid(second.pid()));
  REQUIRE(eventually([&] { return look().cpu > 0.1 && look_at_second().cpu > 0.1; }));
  const WorkerUsage before = look();
  WorkerUsage usage;
  CHECK(eventually([&] { return (usage = look()).cpu > before.cpu + 0.4; }));
  CHECK(usage.cpu_wait - before.cpu_wait > (usage.cpu - before.cpu) / 3);
  kill(first.pid(), SIGKILL);
  kill(second.pid(), SIGKILL);
}

TEST_CASE("looks that follow each other at once, or the start of workers, cost nothing") {
  WorkerUsages usages;
  const auto now = WorkerUsages::Clock::now();
  usages.rest(now);
  CHECK(usages.look({getpid()}, now + WorkerUsages::kGap / 2).empty());
  CHECK(usages.look({getpid()}, now + WorkerUsages::kGap).size() == 1);
}

}  // namespace dtrun::agent::test::worker_usage_test
