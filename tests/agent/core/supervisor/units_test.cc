// Units of workers that hold one state together: they are ended, started and placed as one.
#include <doctest/doctest.h>

#include <csignal>

#include "tests/agent/core/supervisor/scenario.h"

namespace dtrun::agent::test::units_test {

namespace {

Settings four_workers() {
  Settings settings = external(4);
  settings.in_memory_recovery = true;
  return settings;
}

// Two units of two: local ranks 0 and 1, 2 and 3. All work, as ranks 2 to 5.
struct Units : Scenario {
  Units() : Scenario(four_workers()) {
    joins();
    for (const int local_rank : {0, 1, 2, 3}) loads(local_rank);
    state.connection.heartbeat_at.reset();
  }

  Trace loads(int local_rank) {
    happens(event::WorkerOutlives{.serial = serial(local_rank), .unit = 2});
    return is_ready(local_rank);
  }
  Trace dies(int local_rank) { return exits(local_rank, 0, SIGKILL); }
  Trace gets(std::int64_t g, int count) {
    Assignment assignment;
    assignment.generation = g;
    assignment.group_rank = 1;
    assignment.world_size = 2 + count;
    assignment.node_count = 2;
    assignment.node = {"b", "10.0.0.2", count, 2};
    assignment.reason = "because";
    return happens(event::Assigned{assignment});
  }
  Trace told_to_be_whole() {
    event::WaitStatus wait = test::waiting(2, 2);
    wait.run_goes_on = true;
    return happens(wait);
  }
};

}  // namespace

TEST_CASE("a worker dies: its unit ends, the other unit goes on, and the first is started as a whole") {
  Units s;
  CHECK(s.dies(1) == Trace{"signal 9 only #0", "failure r3 signal 9", "pause"});
  CHECK(printed(s, "ending 1 worker whose unit is not whole any more"));
  CHECK(s.is_ready(0, 41, "lost rank 3").empty());  // before the signal reached it
  CHECK(s.is_ready(2, 41).empty());
  CHECK(s.is_ready(3, 41).empty());
  CHECK(s.dies(0) == Trace{"heartbeat", "stopped [r2 signal 9 collateral] [r3 signal 9] has 2"});
  CHECK(s.gets(2, 2) ==
        Trace{"start g2 #4 (local 0, r2) #5 (local 1, r3)", "place #2 as r2", "place #3 as r3", "heartbeat"});
  CHECK(s.loads(1).empty());
  CHECK(s.loads(0) == Trace{"ready"});
}

TEST_CASE("a worker dies that waits for a place: its unit gets none") {
  Units s;
  s.happens(event::StopOrder{1, "a was lost"});
  for (const int local_rank : {0, 1, 2}) s.is_ready(local_rank, 41);
  CHECK(s.dies(0) == Trace{"signal 9 only #1", "failure r2 signal 9"});
  CHECK(s.is_ready(3, 41).empty());
  CHECK(s.dies(1).back() == "stopped [r2 signal 9] [r3 signal 9 collateral] has 2");
  CHECK(s.gets(2, 2) ==
        Trace{"start g2 #4 (local 0, r2) #5 (local 1, r3)", "place #2 as r2", "place #3 as r3", "heartbeat"});
}

TEST_CASE(
    "a worker dies after its node's last word on the generation: the next one waits for its unit's end") {
  Units s;
  s.happens(event::StopOrder{1, "a was lost"});
  for (const int local_rank : {0, 1, 2, 3}) s.is_ready(local_rank, 41);
  CHECK(s.dies(0) == Trace{"signal 9 only #1"});
  CHECK(s.gets(2, 4).empty());
  CHECK(s.dies(1) ==
        Trace{"start g2 #4 (local 0, r2) #5 (local 1, r3)", "place #2 as r4", "place #3 as r5", "heartbeat"});
}

TEST_CASE("one worker of each unit dies: all begin again") {
  Units s;
  CHECK(s.dies(0) == Trace{"signal 9 only #1", "failure r2 signal 9", "pause"});
  CHECK(s.dies(3) == Trace{"signal 9 only #2"});
  s.dies(1);
  CHECK(s.dies(2).back().ends_with("has 0"));
  CHECK(printed(s, "no unit that holds a state is left on this node"));
  CHECK(s.gets(2, 4) == Trace{"start g2", "heartbeat"});
}

TEST_CASE("a unit that is not loaded as a whole does not count among those that wait") {
  Scenario s(four_workers());
  s.joins();
  for (const int local_rank : {0, 1, 2, 3})
    s.happens(event::WorkerOutlives{.serial = s.serial(local_rank), .unit = 2});
  for (const int local_rank : {0, 2, 3}) s.is_ready(local_rank);  // these have their places, and wait for 1
  s.happens(event::StopOrder{1, "a was lost"});
  s.is_ready(0);
  s.is_ready(2);
  CHECK(s.is_ready(3) == Trace{"heartbeat", "stopped has 2"});
}

TEST_CASE("a unit that loads is started again as a whole, and that is one failure") {
  Units s;
  s.dies(0);
  for (const int local_rank : {2, 3}) s.is_ready(local_rank, 41);
  s.dies(1);
  s.gets(2, 2);
  s.told_to_be_whole();
  for (const int again : {1, 2}) {
    CAPTURE(again);
    s.loads(0);
    const Trace ended = s.dies(1);
    CHECK(ended == Trace{"signal 9 only #" + std::to_string(s.serial(0))});
    const int next = s.state.workers.next_serial;
    CHECK(s.dies(0) == Trace{"warm up #" + std::to_string(next) + " (local 0, r2) #" +
                             std::to_string(next + 1) + " (local 1, r3)"});
  }
}

TEST_CASE(
    "the unit that holds the state dies while the other one loads: people are told that there is none") {
  Units s;
  s.dies(0);
  for (const int local_rank : {2, 3}) s.is_ready(local_rank, 41);
  s.dies(1);
  s.gets(2, 2);
  CHECK_FALSE(printed(s, "no unit that holds a state is left"));
  s.dies(2);
  CHECK(printed(s, "no unit that holds a state is left"));
}

TEST_CASE("workers that hold a state come before those that have just loaded") {
  Units s;
  s.dies(0);
  for (const int local_rank : {2, 3}) s.is_ready(local_rank, 41);
  s.dies(1);
  s.told_to_be_whole();
  s.loads(0);
  s.loads(1);
  CHECK(s.gets(2, 2) ==
        Trace{"start g2 with the same workers", "place #2 as r2", "place #3 as r3", "heartbeat"});
}

TEST_CASE("one of a unit may end with 0 before the other does, which gets no other place") {
  Units s;
  CHECK(s.exits(0, 0).empty());
  CHECK(s.dies(3) == Trace{"signal 9 only #2", "failure r5 signal 9", "pause"});
  CHECK(s.is_ready(1, 100) == Trace{"signal 9 only #1"});
}

TEST_CASE("workers of a unit that are told to end have their time for it") {
  Units s;
  s.happens(event::Signal{SIGTERM});
  CHECK(s.exits(0, 1).empty());
}

TEST_CASE(
    "a unit leaves its generation with the gradients of the step in hand: it has --shutdown_timeout for "
    "them") {
  Units s;
  s.state.settings.shutdown_timeout = 40000;
  s.happens(event::StopOrder{1, "a was lost"});
  CHECK(s.passes(39999).empty());
  CHECK(s.passes(40000) == Trace{"signal 9"});
}

}  // namespace dtrun::agent::test::units_test
