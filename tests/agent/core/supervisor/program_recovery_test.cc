// Programs whose workers say that they outlive generations are paused, placed and warmed up as the built-in
// trainer's are; all others are started again, whole.
#include <doctest/doctest.h>

#include <algorithm>
#include <csignal>

#include "tests/agent/core/supervisor/scenario.h"

namespace dtrun::agent::test::program_recovery_test {

namespace {

Settings with_recovery() {
  Settings settings = external(2);
  settings.in_memory_recovery = true;
  return settings;
}

struct Program : Scenario {
  explicit Program(Settings settings = with_recovery()) : Scenario(std::move(settings)) { joins(); }

  Trace says_it_outlives(int local_rank) { return happens(event::WorkerOutlives{serial(local_rank)}); }
  // Both have said so, and have their places as ranks 2 and 3.
  void both_work() {
    for (const int local_rank : {0, 1}) {
      says_it_outlives(local_rank);
      CHECK(is_ready(local_rank) ==
            Trace{"place #" + std::to_string(serial(local_rank)) + " as r" + std::to_string(2 + local_rank)});
    }
    state.connection.heartbeat_at.reset();
  }
  Trace gets(std::int64_t g, int count) {
    Assignment assignment;
    assignment.generation = g;
    assignment.group_rank = 1;
    assignment.world_size = 2 + count;
    assignment.node_count = 2;
    assignment.node = {"b", "10.0.0.2", count, 2};
    assignment.restart_count = 1;
    assignment.reason = "because";
    return happens(event::Assigned{assignment});
  }
};

}  // namespace

TEST_CASE("all workers of a program outlive: the survivor goes on, and its replacement is taken in") {
  Program s;
  s.both_work();
  CHECK(s.exits(1, 0, SIGKILL) == Trace{"failure r3 signal 9", "pause"});
  CHECK(s.is_ready(0, 41) == Trace{"heartbeat", "stopped [r3 signal 9] has 1"});
  CHECK(s.gets(2, 1) == Trace{"start g2 #2 (local 1, r3)", "place #0 as r2", "heartbeat"});
  CHECK(s.says_it_outlives(1).empty());
  CHECK(s.is_ready(1) == Trace{"ready"});
  CHECK(s.happens(event::StopOrder{.generation = 2, .reason = "b is whole", .after_step = true}) ==
        Trace{"pause after step"});
  CHECK(s.is_ready(0, 60) == Trace{"heartbeat", "stopped has 2"});
  CHECK(s.gets(3, 2) ==
        Trace{"start g3 with the same workers", "place #0 as r2", "place #2 as r3", "heartbeat"});
  s.exits(0, 0);
  CHECK(s.exits(1, 0) == Trace{"heartbeat", "finished g3"});
}

TEST_CASE("one worker of two outlives: all are stopped, and start again") {
  Program s;
  s.says_it_outlives(0);
  CHECK(s.is_ready(0) == Trace{"place #0 as r2"});
  CHECK(s.exits(1, 0, SIGKILL) == Trace{"failure r3 signal 9", "signal 15"});
  CHECK(s.exits(0, 0, SIGTERM).back() == "stopped [r2 signal 15 collateral] [r3 signal 9] has 0");
  CHECK(s.gets(2, 2) == Trace{"start g2", "heartbeat"});
  CHECK(s.is_ready(0, 41).empty());  // the new process has not said that it outlives
}

TEST_CASE("a program that says nothing starts again whole, and its node does not wait for it to load") {
  Program s;
  CHECK(s.happens(event::StopOrder{1, "a was lost"}) == Trace{"signal 15"});
  s.exits(0, 0, SIGTERM);
  CHECK(s.exits(1, 0, SIGTERM).back() == "stopped [r2 signal 15 collateral] [r3 signal 15 collateral] has 0");
  event::WaitStatus wait = test::waiting(2, 2);
  wait.run_goes_on = true;
  CHECK(s.happens(wait) == Trace{"ready"});
}

TEST_CASE("without in-memory recovery a worker may say what it likes") {
  Program s(external(2));
  s.says_it_outlives(0);
  s.says_it_outlives(1);
  CHECK(s.is_ready(0).empty());
  CHECK(s.exits(1, 0, SIGKILL) == Trace{"failure r3 signal 9", "signal 15"});
}

TEST_CASE("a worker that is being stopped does not come to outlive by saying so") {
  Program s;
  s.says_it_outlives(0);
  s.exits(0, 0, SIGKILL);
  CHECK(s.says_it_outlives(1).empty());
  CHECK(s.is_ready(1).empty());
  CHECK(s.exits(1, 0, SIGTERM).back() == "stopped [r2 signal 9] [r3 signal 15 collateral] has 0");
}

TEST_CASE("a node whose program is known to outlive loads before it is taken in") {
  Program s;
  s.both_work();
  s.exits(0, 0, SIGKILL);
  s.exits(1, 0, SIGKILL);
  event::WaitStatus wait = test::waiting(2, 2);
  wait.run_goes_on = true;
  CHECK(s.happens(wait) == Trace{"warm up #2 (local 0, r2) #3 (local 1, r3)"});
  for (const int local_rank : {0, 1}) s.says_it_outlives(local_rank);
  CHECK(s.is_ready(0).empty());
  CHECK(s.is_ready(1) == Trace{"ready"});
  CHECK(s.reconnects(true) ==
        Trace{"join g1 as 1", "failure r2 signal 9", "heartbeat", "stopped has 2", "ready", "heartbeat"});
  s.gets(2, 2);
  CHECK_FALSE(printed(s, "had ended with 0"));
}

TEST_CASE("a node that joins a run whose workers outlive loads before it is taken in") {
  Scenario s(with_recovery());
  s.happens(event::Opened{});
  s.happens(event::Connected{});
  s.happens(event::JoinAck{"10.0.0.3", 1000});
  event::WaitStatus wait = test::waiting(2, 2);
  wait.run_goes_on = wait.outlives = true;
  CHECK(s.happens(wait) == Trace{"warm up #0 (local 0, r0) #1 (local 1, r1)"});
  for (const int local_rank : {0, 1}) s.happens(event::WorkerOutlives{s.serial(local_rank)});
  CHECK(s.is_ready(1).empty());
  CHECK(s.is_ready(0) == Trace{"ready"});
  CHECK(s.assigned(5) ==
        Trace{"start g5 with the same workers", "place #0 as r2", "place #1 as r3", "heartbeat"});
}

TEST_CASE("that a program's workers outlive is told to the coordinator once all of them have said so") {
  Program s;
  const auto told = [&] {
    s.now += 1000;
    return std::get<action::SendHeartbeat>(decide(s.state, event::Tick{}, s.now).at(0)).outlives;
  };
  s.says_it_outlives(0);
  CHECK_FALSE(told());
  s.says_it_outlives(1);
  CHECK(told());
}

TEST_CASE("a collective that broke without a cause makes no culprit") {
  Program s;
  s.both_work();
  s.is_ready(0, 41, "lost rank 0");
  CHECK(s.passes(3000) == Trace{"failure r2 code 76 collateral final", "pause"});
}

TEST_CASE("who loaded beside the last state of a program is ended with it, and another one loads") {
  Program s;
  s.both_work();
  s.exits(1, 0, SIGKILL);
  s.is_ready(0, 41);
  s.gets(2, 1);
  s.says_it_outlives(1);
  s.is_ready(1);
  s.state.connection.heartbeat_at.reset();
  CHECK(s.exits(0, 0, SIGKILL) == Trace{"failure r2 signal 9", "signal 9 only #2"});
  const Trace after = s.exits(1, 0, SIGKILL);
  CHECK(after.front() == "warm up #3 (local 0, r2) #4 (local 1, r3)");
  CHECK(after.back() == "stopped has 0");
  s.gets(3, 2);
  CHECK(printed(s, "no worker on this node has the state of step 41 any more"));
}

TEST_CASE("as a node is told to end, of those that wait the furthest alone save their state") {
  Program s;
  s.both_work();
  s.is_ready(0, 41, "lost rank 0");
  s.happens(event::Signal{SIGTERM});
  const Trace trace = s.is_ready(1, 42, "lost rank 0");
  CHECK(std::ranges::count(trace, "end #0") == 1);
  CHECK(std::ranges::count(trace, "end #1 last, r3 of 4") == 1);
}

TEST_CASE("who waits without a state is ended as the job is, and where others go on nobody saves") {
  Settings elastic = with_recovery();
  elastic.elastic = true;
  for (const Settings& settings : {with_recovery(), elastic}) {
    Program s(settings);
    s.both_work();
    s.exits(1, 0, SIGKILL);
    s.is_ready(0, 41);
    s.gets(2, 1);
    s.says_it_outlives(1);
    s.is_ready(1);
    Trace trace = s.happens(event::Signal{SIGTERM});
    CHECK(std::ranges::count(trace, "end #2") == 1);  // has loaded, and no more
    trace = s.is_ready(0, 50);
    CHECK(std::ranges::count(trace, settings.elastic ? "end #0" : "end #0 last, r2 of 3") == 1);
    CHECK(std::ranges::count(trace, "signal 15") == 0);  // Python may be ending, and would die of it
  }
}

TEST_CASE("a job that failed, or is done, has no state to save for who waits") {
  for (const bool failed : {true, false}) {
    Program s;
    s.both_work();
    s.is_ready(0, 41, "lost rank 0");
    event::Ended end = job_end(failed ? 1 : 0);
    if (failed) end.job.first_failure.emplace();
    s.happens(end);
    const Trace trace = s.is_ready(1, 41, "lost rank 0");
    CHECK(std::ranges::count(trace, "end #0") == 1);
    CHECK(std::ranges::count(trace, "end #1") == 1);
  }
}

TEST_CASE("a worker that ended with 0 while its peers were in a step is the failure, and not they") {
  Program s;
  s.both_work();
  s.exits(1, 0);
  CHECK(s.is_ready(0, 41, "lost rank 3").front() == "failure r3 code 1 final");
}

TEST_CASE("training that is complete as the order to pause comes is finished") {
  Program s;
  s.both_work();
  s.happens(event::StopOrder{.generation = 1, .reason = "b is whole", .after_step = true});
  s.exits(0, 0);
  CHECK(s.exits(1, 0) == Trace{"heartbeat", "finished g1"});
}

}  // namespace dtrun::agent::test::program_recovery_test
