#include "agent/health/group_usage.h"

#include <doctest/doctest.h>

#include <csignal>

#include "tests/agent/agent_process.h"

namespace dtrun::agent::test::group_usage_test {

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
  for (const dtrun::ProcessStat& member : usage.members) kill(member.pid, SIGKILL);
}

}  // namespace dtrun::agent::test::group_usage_test
