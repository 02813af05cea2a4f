// The limits in time of the agent's decisions, each from both sides; what else it decides is in
// decide_test.cc.
#include <doctest/doctest.h>

#include <csignal>

#include "agent/core/supervisor/decide.h"
#include "tests/agent/core/supervisor/scenario.h"

namespace dtrun::agent::test::deadlines_test {

namespace {

// An agent that hosts the coordinator: its job has just ended, at 0 ms, and other nodes are still connected.
Scenario host_after(int exit_code) {
  Scenario s(external(1));
  s.hosting = true;
  s.joins();
  s.exits(0, exit_code);
  s.state.connection.heartbeat_at.reset();
  const Trace trace = s.happens(job_end(exit_code));
  CHECK(trace.back() == "await members");
  return s;
}

}  // namespace

TEST_CASE(
    "the agent that hosts the coordinator says after 2 s that it waits, and ends without the others after 15 "
    "s") {
  Scenario s = host_after(0);
  CHECK(s.passes(1999) == Trace{});
  CHECK(s.printed.empty());
  CHECK(s.passes(2000) == Trace{});
  CHECK(printed(s, "waiting for the other nodes to leave"));
  CHECK(s.passes(14999) == Trace{});
  CHECK(s.passes(15000) == Trace{"end 0"});
}

TEST_CASE("a signal while the hosting agent waits for the others ends it with the job's exit code") {
  for (const int code : {0, 3}) {
    CAPTURE(code);
    Scenario s = host_after(code);
    CHECK(s.happens(event::Signal{SIGINT}) == Trace{"end " + std::to_string(code)});
  }
}

TEST_CASE("the same signal within 250 ms is one that was delivered twice, a later one is a second") {
  for (const bool twice : {true, false}) {
    CAPTURE(twice);
    Scenario s(external(1));
    s.joins();
    s.happens(event::Signal{SIGTERM});
    s.now = twice ? 249 : 250;
    CHECK(s.happens(event::Signal{SIGTERM}) == (twice ? Trace{} : Trace{"drop output", "signal 9"}));
  }
}

TEST_CASE("a loss of the coordinator is told after a second") {
  Scenario s(builtin());
  s.joins();
  s.happens(event::Disconnected{"connection reset", false});
  CHECK(s.passes(999) == Trace{});
  CHECK(s.printed.empty());
  s.passes(1000);
  CHECK(printed(s, "connection reset; workers keep running, trying again for 29 s"));
}

TEST_CASE("why workers are stopped is told if they take 3 s") {
  Scenario s(external());
  s.joins();
  s.exits(1, 3);
  s.passes(2999);
  CHECK(s.printed.empty());
  s.passes(3000);
  CHECK(printed(s, "rank 3 ended with exit code 3; 1 worker to end yet"));

  Scenario swift(external());
  swift.joins();
  swift.exits(1, 3);
  swift.passes(2999);
  swift.exits(0, 0, SIGTERM);
  swift.passes(10000);
  CHECK(swift.printed.empty());
}

TEST_CASE("whoever waits hears of it every 5 s, for nodes as for a coordinator") {
  Scenario nodes(builtin());
  nodes.happens(event::Connected{});
  nodes.happens(event::JoinAck{"10.0.0.2", 60000});
  nodes.happens(waiting(1, 2));
  CHECK(nodes.printed.size() == 1);
  nodes.passes(4999);
  CHECK(nodes.printed.size() == 1);
  nodes.passes(5000);
  CHECK(nodes.printed.size() == 2);

  Scenario coordinator(builtin());
  coordinator.happens(event::Disconnected{"connection refused", false});
  coordinator.passes(4999);
  CHECK(coordinator.printed.empty());
  coordinator.passes(5000);
  CHECK(coordinator.printed.size() == 1);
  coordinator.passes(9999);
  CHECK(coordinator.printed.size() == 1);
  coordinator.passes(10000);
  CHECK(coordinator.printed == Trace{"connection refused; trying for another 595 s",
                                     "connection refused; trying for another 590 s"});
}

TEST_CASE("a lost coordinator is waited for 30 s, a `dtrun store` no shorter than that") {
  for (const bool separate : {false, true}) {
    CAPTURE(separate);
    Settings settings = builtin(1);
    settings.join_timeout = 5000;
    Scenario s(settings);
    s.joins();
    s.happens(event::JoinAck{"10.0.0.2", 1000, true, separate});
    s.happens(event::Disconnected{"connection refused", false});
    CHECK(s.passes(29999) == Trace{});
    CHECK(s.passes(30000) == Trace{"abort", "signal 15"});
  }
}

TEST_CASE("what a worker left behind may end by itself, unless the worker or the job failed") {
  Scenario s(external());
  s.joins();
  s.now = 1000;
  CHECK(fate_of_left_behind(s.state, true, s.now).until == 31000);
  LeftBehindFate fate = fate_of_left_behind(s.state, false, s.now);
  CHECK_FALSE(fate.until);
  CHECK(fate.told);
  s.happens(event::StopOrder{1, "another node failed"});
  CHECK_FALSE(fate_of_left_behind(s.state, true, s.now).until);
  fate = fate_of_left_behind(s.state, false, s.now);
  CHECK_FALSE(fate.until);
  CHECK_FALSE(fate.told);
}

TEST_CASE("what a worker left behind that a signal ended has as much time as the worker had") {
  Scenario s(external());
  s.joins();
  s.happens(event::Signal{SIGTERM});
  CHECK(fate_of_left_behind(s.state, true, 20000).until == 30000);
}

}  // namespace dtrun::agent::test::deadlines_test
