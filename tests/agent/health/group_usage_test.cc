#include "agent/health/group_usage.h"

#include <doctest/doctest.h>

#include <csignal>

#include "tests/agent/agent_process.h"

using namespace dtrun::agent;
using namespace dtrun::agent::test;

TEST_CASE("a process is read from its stat line, whatever its name holds") {
  const auto stat = parse_stat(
      "4711 (a) b (c) S 1 4700 28103 0 -1 4194304 101 0 7 2 30 12 5 3 20 0 6 0 1355134 3133440 408 1 2 3");
  REQUIRE(stat.has_value());
  CHECK(stat->pid == 4711);
  CHECK(stat->parent == 1);
  CHECK(stat->group == 4700);
  CHECK(stat->name == "a) b (c");
  CHECK(stat->state == 'S');
  CHECK(stat->major_faults == 7 + 2);
  CHECK(stat->cpu_ticks == 30 + 12 + 5 + 3);
  CHECK(stat->threads == 6);
  CHECK(stat->resident_pages == 408);
}

TEST_CASE("what is no stat line gives nothing") {
  for (const char* text : {"", "4711", "4711 (a", "4711 )a(", "4711 (a) S 1 4700", "4711 (a) S x"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_stat(text).has_value());
  }
}

TEST_CASE("children count to the group of their ancestor, also when they have left it") {
  // timeout(1) makes a process group of its own.
  Process shell({"/bin/sh", "-c", "timeout 100 sh -c 'while :; do :; done' & echo ready; wait"});
  REQUIRE(shell.wait_for_out("ready"));
  const pid_t leader = getpgid(shell.pid());
  CHECK(eventually([&] {
    const GroupUsage usage = usage_of_groups({leader})[leader];
    return usage.members.size() == 3 && usage.cpu_ms > 50;
  }));
  const GroupUsage usage = usage_of_groups({leader})[leader];
  CHECK(usage.processes != 0);
  // The destructor waits for the output's end, and those that left the group hold it as well.
  for (const ProcessStat& member : usage.members) kill(member.pid, SIGKILL);
}
