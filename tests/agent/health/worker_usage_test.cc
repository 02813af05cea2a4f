// The kernel's account of workers: real processes, and texts of the kernel's files.
#include "agent/health/worker_usage.h"

#include <doctest/doctest.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include "tests/agent/agent_process.h"

using namespace dtrun::agent;
using namespace dtrun::agent::test;

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

TEST_CASE(
    "the wait for a CPU is read from a schedstat, the time without quota from a cpu.stat of either version") {
  CHECK(run_delay("8000000 455000000 120\n") == 455000000);
  CHECK(run_delay("") == 0);
  CHECK(run_delay("8000000") == 0);
  CHECK(throttled_seconds("usage_usec 9\nnr_throttled 3\nthrottled_usec 2500000\n") == 2.5);
  CHECK(throttled_seconds("nr_periods 5\nnr_throttled 3\nthrottled_time 2500000000\n") == 2.5);
  CHECK(throttled_seconds("unthrottled_usec 7\n") == 0);
}

TEST_CASE("a worker's account has its descendants, and does not fall when they end") {
  // Half of a minute, or a second of the processor's time.
  Process shell(
      {"/bin/sh", "-c", "(ulimit -t 1; timeout 30 sh -c 'while :; do :; done'); echo gone; exec sleep 100"});
  const pid_t leader = getpgid(shell.pid());
  Looks look(leader);
  CHECK(eventually([&] { return look().cpu > 0.2; }));
  const WorkerUsage busy = look();
  CHECK(busy.resident_bytes > 100'000);
  CHECK(busy.read_bytes > 0);
  REQUIRE(shell.wait_for_out("gone", Process::Duration(60000)));
  const WorkerUsage after = look();
  CHECK(after.cpu >= busy.cpu);
  CHECK(after.cpu_wait >= busy.cpu_wait);
  CHECK(after.read_bytes >= busy.read_bytes);
  CHECK(eventually([&] { return look().resident_bytes < busy.resident_bytes; }));
}

TEST_CASE("of two processes that want one core each waits for it about as long as it runs") {
  cpu_set_t before, one;
  REQUIRE(sched_getaffinity(0, sizeof before, &before) == 0);
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu)
    if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
  REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
  Process first({"/bin/sh", "-c", "while :; do :; done"}), second({"/bin/sh", "-c", "while :; do :; done"});
  sched_setaffinity(0, sizeof before, &before);
  Looks look(getpgid(first.pid()));
  WorkerUsage usage;
  CHECK(eventually([&] { return (usage = look()).cpu > 0.4; }));
  CHECK(usage.cpu_wait > usage.cpu / 3);
  kill(first.pid(), SIGKILL);
  kill(second.pid(), SIGKILL);
}

TEST_CASE(
    "of other programs the one counts that has run most on the worker's processors, since a search ago") {
  const auto process = [](pid_t pid, std::int64_t ticks, int processor, std::int64_t start = 5) {
    dtrun::ProcessStat stat;
    stat.pid = pid, stat.name = "p" + std::to_string(pid), stat.own_ticks = ticks;
    stat.processor = processor, stat.start_ticks = start;
    return std::pair(pid, stat);
  };
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  CPU_SET(1, &cpus);
  const double second = static_cast<double>(sysconf(_SC_CLK_TCK));
  const auto ticks = [&](double seconds) { return static_cast<std::int64_t>(seconds * second); };
  const std::map<pid_t, GroupUsage> workers{
      {20, {.members = {process(20, 0, 1).second, process(21, 0, 1).second}}}};
  const ProcessTable before{process(20, 0, 1), process(21, 0, 1), process(30, ticks(50), 1),
                            process(31, 0, 1), process(32, 0, 0), process(33, ticks(9), 1, 4)};
  const ProcessTable now{process(20, ticks(4), 1),  process(21, ticks(4), 1),  process(30, ticks(51), 1),
                         process(31, ticks(2), 1),  process(32, ticks(4), 0),  process(33, ticks(99), 1, 7),
                         process(34, ticks(80), 1), process(35, ticks(80), -1)};
  const auto found = neighbour_of(cpus, before, now, workers, 4);
  REQUIRE(found.has_value());
  CHECK(found->pid == 31);
  CHECK(found->name == "p31");
  CHECK(found->cpus == 0.5);
  CHECK_FALSE(neighbour_of(cpus, now, now, workers, 4).has_value());
}

TEST_CASE("a worker that a signal has stopped is told of as that, not as one that waits for a CPU") {
  Process burner({"/bin/sh", "-c", "while :; do :; done"});
  const pid_t leader = burner.pid();
  Looks look(leader);
  CHECK(eventually([&] { return look().cpu > 0.1; }));
  kill(-leader, SIGSTOP);
  CHECK(eventually([&] { return look().stopped >= 2; }));
  const WorkerUsage stopped = look();
  kill(-leader, SIGCONT);
  CHECK(stopped.stopped >= 3);
  CHECK(eventually([&] { return look().cpu > stopped.cpu; }));
  CHECK(look().stopped <= stopped.stopped + 1.5);
}

TEST_CASE("looks that follow each other at once, or the start of workers, cost nothing") {
  WorkerUsages usages;
  const auto now = WorkerUsages::Clock::now();
  usages.rest(now);
  CHECK(usages.look({getpid()}, now + WorkerUsages::kGap / 2).empty());
  CHECK(usages.look({getpid()}, now + WorkerUsages::kGap).size() == 1);
}
