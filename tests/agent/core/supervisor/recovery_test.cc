// Workers of the built-in trainer outlive generations: their pauses, replacements, places and returns, and
// the reports to the coordinator.
#include <doctest/doctest.h>

#include <csignal>

#include "tests/agent/core/supervisor/scenario.h"

namespace dtrun::agent::test::recovery_test {

namespace {

Settings recovering(int nproc = 2) {
  Settings settings = builtin(nproc);
  settings.in_memory_recovery = true;
  return settings;
}

// Two workers, #0 and #1, ranks 2 and 3 of generation 1, are at work.
struct AtWork : Scenario {
  explicit AtWork(int nproc = 2, int nodes = 2) : Scenario(recovering(nproc)) {
    joins(1, 0, nodes);
    for (int local = 0; local < nproc; ++local) is_ready(local);
    state.connection.heartbeat_at.reset();
  }
  // A generation in which this node has `count` workers.
  Trace gets(std::int64_t g, int count, int restarts = 0) {
    Assignment assignment;
    assignment.generation = g;
    assignment.group_rank = 1;
    assignment.world_size = 2 + count;
    assignment.node_count = 2;
    assignment.node = {"b", "10.0.0.2", count, 2};
    assignment.restart_count = restarts;
    assignment.reason = "because";
    return happens(event::Assigned{assignment});
  }
  // A generation breaks elsewhere, and both wait for the next one.
  void waits() {
    happens(event::StopOrder{1, "a was lost"});
    is_ready(0, 41);
    is_ready(1, 41);
  }
  Trace waits_outside() {
    event::WaitStatus wait = test::waiting(2, 2);
    wait.run_goes_on = true;
    return happens(wait);
  }
};

}  // namespace

TEST_CASE("a worker gets its place once it has loaded") {
  Scenario s(recovering());
  CHECK(s.joins() == Trace{"join g0", "start g1", "heartbeat"});
  CHECK(s.is_ready(1) == Trace{"place #1 as r3"});
  CHECK(s.is_ready(0) == Trace{"place #0 as r2"});
}

TEST_CASE("a worker dies: the other keeps what it has, goes on alone, and both go on when it is replaced") {
  AtWork s;
  CHECK(s.exits(1, 0, SIGKILL) == Trace{"failure r3 signal 9", "pause"});
  CHECK(s.is_ready(0, 41) == Trace{"heartbeat", "stopped [r3 signal 9] has 1"});
  CHECK(s.gets(2, 1, 1) == Trace{"start g2 #2 (local 1, r3)", "place #0 as r2", "heartbeat"});
  CHECK(s.is_ready(1) == Trace{"ready"});
  CHECK(s.happens(event::StopOrder{.generation = 2, .reason = "b is whole", .after_step = true}) ==
        Trace{"pause after step"});
  CHECK(s.is_ready(0, 60) == Trace{"heartbeat", "stopped has 2"});
  CHECK(s.gets(3, 2, 1) ==
        Trace{"start g3 with the same workers", "place #0 as r2", "place #2 as r3", "heartbeat"});
  s.exits(0, 0);
  CHECK(s.exits(1, 0) == Trace{"heartbeat", "finished g3"});
}

TEST_CASE(
    "a worker dies and the rest would not fit the memory: the survivor waits while the other is replaced") {
  AtWork s;
  s.exits(1, 0, SIGKILL);
  s.is_ready(0, 41);
  event::WaitStatus few = test::waiting(2, 2);
  few.short_of_workers = "with 1 worker the part of b does not fit its memory";
  few.left = 60000;
  CHECK(s.happens(few) == Trace{"warm up #2 (local 1, r3)"});
  CHECK(s.happens(few).empty());
  CHECK(s.is_ready(1) == Trace{"ready"});
  CHECK(s.gets(2, 2, 1) ==
        Trace{"start g2 with the same workers", "place #0 as r2", "place #2 as r3", "heartbeat"});
}

TEST_CASE("the first worker dies: the survivor has its rank until the replacement is there") {
  AtWork s;
  s.exits(0, 0, SIGSEGV);
  s.is_ready(1, 41);
  CHECK(s.gets(2, 1, 1) == Trace{"start g2 #2 (local 0, r2)", "place #1 as r2", "heartbeat"});
  CHECK(s.is_ready(0) == Trace{"ready"});
  s.happens(event::StopOrder{.generation = 2, .reason = "b is whole", .after_step = true});
  s.is_ready(1, 60);
  CHECK(s.gets(3, 2, 1) ==
        Trace{"start g3 with the same workers", "place #2 as r2", "place #1 as r3", "heartbeat"});
}

TEST_CASE("a survivor that has the rank of a dead one fails as that rank") {
  AtWork s;
  s.exits(0, 0, SIGSEGV);
  s.is_ready(1, 41);
  s.gets(2, 1, 1);
  CHECK(s.exits(1, 0, SIGKILL).front() == "failure r2 signal 9");
}

TEST_CASE("what a recovery kept and how long it took is told once its first step is done") {
  AtWork s;
  s.now = 1000;
  s.is_ready(0, 41, "lost rank 3");
  CHECK(s.trained(0, 41).empty());
  s.now = 1010;
  s.exits(1, 0, SIGKILL);
  s.gets(2, 1, 1);
  CHECK(s.trained(41, 41).empty());
  s.now = 1030;
  CHECK(s.trained(41, 42) == Trace{"recovered at 41, kept 1, replaced 1, took 30"});
  CHECK(s.trained(41, 43).empty());
}

TEST_CASE("a replacement that has not trained yet is none that was kept") {
  AtWork s;
  s.exits(1, 0, SIGKILL);
  s.is_ready(0, 41);
  s.gets(2, 1, 1);
  s.trained(41, 42);
  s.is_ready(1);
  s.now = 2000;
  s.happens(event::StopOrder{.generation = 2, .reason = "b is whole", .after_step = true});
  s.is_ready(0, 60);
  s.gets(3, 2, 1);
  CHECK(s.trained(60, 61) == Trace{"recovered at 60, kept 1, replaced 0, took 0"});
}

TEST_CASE("a recovery from a copy that outlived all workers is told as such") {
  AtWork s;
  s.now = 1000;
  for (const int worker : {0, 1}) s.exits(worker, 0, SIGKILL);
  s.gets(2, 1, 1);
  s.now = 1500;
  CHECK(s.trained(40, 41, true) ==
        Trace{"recovered at 40, kept 0, replaced 2, took 500, from the host's memory"});
}

TEST_CASE("how far the survivors are is told before the coordinator judges the failure") {
  AtWork s;
  s.progressed(30);
  s.exits(1, 0, SIGKILL);
  s.is_ready(0, 41);
  CHECK(s.state.generation.progress->step == 41);
}

TEST_CASE("what paused workers repeat of their progress is no news, of the next generation it is") {
  AtWork s;
  s.progressed(30);
  CHECK(s.state.progresses(1));
  s.happens(event::StopOrder{1, "a was lost"});
  CHECK_FALSE(s.state.progresses(1));
  s.is_ready(0, 41);
  s.is_ready(1, 41);
  s.progressed(30);
  CHECK(s.state.generation.progress->step == 41);
  s.gets(2, 2);
  CHECK(s.state.progresses(2));
  s.progressed(42);
  CHECK(s.state.generation.progress->step == 42);
}

TEST_CASE("workers that left their generation by themselves have no progress to tell") {
  AtWork s;
  s.is_ready(0, 41, "lost rank 0");
  CHECK(s.state.progresses(1));
  s.is_ready(1, 41, "lost rank 0");
  CHECK_FALSE(s.state.progresses(1));
}

TEST_CASE("what a worker says of an earlier generation is none of this one") {
  AtWork s;
  s.exits(1, 0, SIGKILL);
  s.is_ready(0, 41);
  s.gets(2, 1, 1);
  CHECK(s.happens(event::Progressed{.progress = {.step = 42, .first_step = 0}, .generation = 1}) == Trace{});
  CHECK_FALSE(s.state.generation.progress);
  CHECK_FALSE(s.trained(41, 42).empty());
  s.progressed(42);
  CHECK(s.state.generation.progress->step == 42);
}

TEST_CASE("another node's trouble pauses this one's workers, and nobody is stopped") {
  AtWork s;
  CHECK(s.happens(event::StopOrder{1, "rank 0 on a failed"}) == Trace{"pause"});
  CHECK(s.is_ready(1, 41).empty());
  CHECK(s.is_ready(0, 40) == Trace{"heartbeat", "stopped has 2"});
  CHECK(s.gets(2, 2, 1) ==
        Trace{"start g2 with the same workers", "place #0 as r2", "place #1 as r3", "heartbeat"});
}

TEST_CASE("workers whose collective breaks wait for the cause, here or there") {
  AtWork s;
  CHECK(s.is_ready(0, 41, "lost rank 0").empty());
  CHECK(s.is_ready(1, 41, "lost rank 0").empty());
  SUBCASE("it comes") {
    CHECK(s.happens(event::StopOrder{1, "a was lost"}) == Trace{"heartbeat", "stopped has 2"});
  }
  SUBCASE("it does not") {
    CHECK(s.passes(2999).empty());
    CHECK(s.passes(3000) == Trace{"failure r2 code 76 collateral", "heartbeat", "stopped has 2"});
  }
  SUBCASE("it was a worker of this node") {
    CHECK(s.exits(1, 0, SIGKILL) == Trace{"failure r3 signal 9", "heartbeat", "stopped [r3 signal 9] has 1"});
  }
}

TEST_CASE("peers that agreed on a last step are paused without an order") {
  AtWork s;
  CHECK(s.is_ready(0, 41).empty());
  CHECK(s.is_ready(1, 41) == Trace{"heartbeat", "stopped has 2"});
}

TEST_CASE("a worker that does not leave its generation is killed alone") {
  AtWork s;
  s.happens(event::StopOrder{1, "a was lost"});
  s.is_ready(0, 41);
  CHECK(s.passes(9999).empty());
  CHECK(s.passes(10000) == Trace{"signal 9 only #1"});
  CHECK(s.exits(1, 0, SIGKILL) == Trace{"heartbeat", "stopped [r3 signal 9 collateral] has 1"});
}

TEST_CASE("a step that takes too long is left when it is not to be waited for any longer") {
  AtWork s;
  s.happens(event::StopOrder{.generation = 1, .reason = "c joined", .after_step = true});
  CHECK(s.passes(14999).empty());
  CHECK(s.passes(15000) == Trace{"pause"});
  CHECK(s.passes(25000) == Trace{"signal 9"});
}

TEST_CASE("a generation that is complete when it was to pause is finished, and not trained again") {
  AtWork s;
  s.exits(1, 0, SIGKILL);
  s.is_ready(0, 41);
  s.gets(2, 1, 1);
  s.is_ready(1);
  s.happens(event::StopOrder{.generation = 2, .reason = "b is whole", .after_step = true});
  CHECK(s.exits(0, 0) == Trace{"heartbeat", "finished g2"});
}

TEST_CASE("what is worse than a newcomer ends the step at once") {
  AtWork s;
  s.happens(event::StopOrder{.generation = 1, .reason = "c joined", .after_step = true});
  SUBCASE("told by the coordinator") {
    CHECK(s.happens(event::StopOrder{1, "a was lost"}) == Trace{"pause"});
    CHECK(s.happens(event::StopOrder{1, "a was lost"}).empty());
  }
  SUBCASE("seen here") { CHECK(s.exits(1, 0, SIGKILL) == Trace{"failure r3 signal 9", "pause"}); }
}

TEST_CASE("a replacement that dies while it loads disturbs nobody, until three have died in a row") {
  AtWork s;
  s.exits(1, 0, SIGKILL);
  s.is_ready(0, 41);
  s.gets(2, 1, 1);
  CHECK(s.exits(1, 0, SIGKILL) == Trace{"warm up #3 (local 1, r3)"});
  CHECK(printed(s, "ended with signal 9 (SIGKILL) before it took part in the run; starting another"));
  CHECK(s.exits(1, 1) == Trace{"warm up #4 (local 1, r3)"});
  CHECK(s.exits(1, 1) == Trace{"failure r3 code 1", "pause"});
}

TEST_CASE("in the back-off before a restart a replacement that has loaded is not said to wait for others") {
  AtWork s;
  s.exits(1, 0, SIGKILL);
  s.is_ready(0, 41);
  s.gets(2, 1, 1);
  s.happens(event::StopOrder{2, "rank 0 on a failed"});
  s.is_ready(0, 41);
  event::WaitStatus back_off = waiting(2, 2, 2000, "rank 0 on a failed, restart 2 of 3");
  back_off.left = 0;
  s.happens(back_off);
  s.printed.clear();
  s.is_ready(1);
  CHECK(s.printed == Trace{});
}

TEST_CASE("replacements that died before one has loaded are not in a row with one that dies later") {
  AtWork s;
  s.exits(1, 0, SIGKILL);
  s.is_ready(0, 41);
  s.gets(2, 1, 1);
  s.exits(1, 0, SIGKILL);
  s.exits(1, 0, SIGKILL);
  s.is_ready(1);
  CHECK(s.exits(1, 0, SIGKILL) == Trace{"warm up #5 (local 1, r3)"});
}

TEST_CASE("a replacement that cannot work fails the job at once") {
  AtWork s;
  s.exits(1, 0, SIGKILL);
  s.is_ready(0, 41);
  s.gets(2, 1, 1);
  CHECK(s.exits(1, 66) == Trace{"failure r3 code 66 final", "pause"});
}

TEST_CASE("a worker that still loads is not given the place of one that holds the state") {
  AtWork s;
  s.exits(0, 0, SIGKILL);
  s.is_ready(1, 41);
  s.gets(2, 1, 1);  // the replacement, which has the lower local rank, loads
  s.happens(event::StopOrder{2, "rank 0 on a failed"});
  CHECK(s.is_ready(1, 50) == Trace{"heartbeat", "stopped has 1"});
  CHECK(s.gets(3, 1, 2) == Trace{"start g3 with the same workers", "place #1 as r2", "heartbeat"});
  CHECK(s.is_ready(0) == Trace{"ready"});
}

TEST_CASE("a node that joins loads before it is taken in") {
  AtWork s;
  Scenario newcomer(recovering());
  newcomer.happens(event::Opened{});
  newcomer.happens(event::Connected{});
  newcomer.happens(event::JoinAck{"10.0.0.3", 1000});
  event::WaitStatus wait = waiting(2, 2);
  wait.run_goes_on = true;
  CHECK(newcomer.happens(wait) == Trace{"warm up #0 (local 0, r0) #1 (local 1, r1)"});
  CHECK(newcomer.happens(wait).empty());
  CHECK(newcomer.is_ready(1).empty());
  CHECK(newcomer.is_ready(0) == Trace{"ready"});
  CHECK(newcomer.assigned(5) ==
        Trace{"start g5 with the same workers", "place #0 as r2", "place #1 as r3", "heartbeat"});
}

TEST_CASE("a worker outside of the generation that says twice that it waits stops nobody") {
  AtWork s;
  s.exits(1, 0, SIGKILL);
  s.is_ready(0, 41);
  s.gets(2, 1);
  s.waits_outside();
  CHECK(s.is_ready(1) == Trace{"ready"});
  CHECK(s.is_ready(1, {}, "what").empty());
  CHECK_FALSE(s.state.generation.stopping);
  CHECK_FALSE(s.state.generation.broken_at);
}

TEST_CASE("a node without a place in a full run loads nothing") {
  Scenario s(recovering());
  s.happens(event::Opened{});
  s.happens(event::Connected{});
  event::WaitStatus wait = waiting(3, 2);
  wait.run_goes_on = true;
  CHECK(s.happens(wait).empty());
}

TEST_CASE("a node that can load nothing leaves with its worker's exit code") {
  AtWork s(1);
  s.exits(0, 0, SIGKILL);
  CHECK(s.waits_outside() == Trace{"warm up #1 (local 0, r2)"});
  CHECK(s.exits(0, 66) == Trace{"leave 0", "end 66"});
  CHECK(printed(s, "exit code 66"));
}

TEST_CASE("SIGTERM on one of several nodes: the others go on after the same step, its own save and end") {
  AtWork s;
  CHECK(s.happens(event::Signal{SIGTERM}) == Trace{"pause after step and leave"});
  CHECK(s.is_ready(0, 41).empty());
  CHECK(s.is_ready(1, 41) == Trace{"signal 15"});
  CHECK(s.exits(0, 75).empty());
  CHECK(s.exits(1, 75) == Trace{"leave 15", "end 143"});
}

TEST_CASE("SIGTERM on the only node ends the workers after a step of their own choice") {
  AtWork s(2, 1);
  CHECK(s.happens(event::Signal{SIGTERM}) == Trace{"signal 15"});
  SUBCASE("and one dies") {
    CHECK(s.exits(1, 0, SIGKILL) == Trace{"pause"});
    CHECK(s.is_ready(0, 41).empty());
    CHECK(s.exits(0, 75) == Trace{"leave 15", "end 143"});
  }
}

TEST_CASE("people are told that workers pause, not that they are stopped") {
  AtWork s;
  SUBCASE("by the order") { s.happens(event::StopOrder{1, left("a").text}); }
  SUBCASE("although they broke before it came") {
    s.is_ready(0, 41, "lost rank 0");
    s.happens(event::StopOrder{1, left("a").text});
  }
  const Trace told = s.happens(left("a"));
  REQUIRE(told.size() == 1);
  CHECK(told[0].find(": pausing ") != std::string::npos);
  s.is_ready(0, 41);
  s.is_ready(1, 41);
  CHECK(s.happens(left("a")) == Trace{"news: a left (told to by SIGINT): paused 2 workers"});
}

TEST_CASE("workers that wait for a generation are told to save and end when there will be none") {
  AtWork s;
  s.waits();
  SUBCASE("by a signal") {
    CHECK(s.happens(event::Signal{SIGINT}) == Trace{"signal 15"});
    s.exits(0, 75);
    CHECK(s.exits(1, 75) == Trace{"leave 2", "end 130"});
  }
  SUBCASE("by the job's end") {
    CHECK(s.happens(job_end(69)) == Trace{"signal 15"});
    s.exits(0, 75);
    CHECK(s.exits(1, 75) == Trace{"report the reason", "end 69"});
  }
}

TEST_CASE(
    "a node that gives up has its workers leave a step that would not end, then they have all the time to "
    "save") {
  AtWork s;
  CHECK(s.happens(event::Rejected{78, false, "another config"}).back() == "pause");
  s.is_ready(0, 41);
  CHECK(s.is_ready(1, 41) == Trace{"signal 15"});
  CHECK(s.state.generation.kill_at == s.now + s.state.settings.shutdown_timeout);
  s.exits(0, 75);
  CHECK(s.exits(1, 75).back() == "end 78");
}

TEST_CASE("a worker that dies while it waits is started again with the next generation") {
  AtWork s;
  s.waits();
  CHECK(s.exits(1, 0, SIGKILL).empty());
  CHECK(s.gets(2, 2) == Trace{"start g2 #2 (local 1, r3)", "place #0 as r2", "heartbeat"});
  CHECK(s.is_ready(1) == Trace{"place #2 as r3"});
}

TEST_CASE("a coordinator that gave this node up hears that its workers wait, as soon as they do") {
  AtWork s;
  CHECK(s.reconnects(false) == Trace{"join g1 as 1", "pause"});
  CHECK(s.is_ready(0, 41).empty());
  CHECK(s.is_ready(1, 41) == Trace{"heartbeat", "stopped has 2", "ready"});
  SUBCASE("and hears it again if it forgets") {
    CHECK(s.reconnects(false) == Trace{"join g1 as 1", "ready"});
  }
  SUBCASE("which lets them take part with what they hold") {
    CHECK(s.gets(3, 2) ==
          Trace{"start g3 with the same workers", "place #0 as r2", "place #1 as r3", "heartbeat"});
    s.happens(event::StopOrder{3, "a was lost"});
    s.is_ready(0, 50);
    CHECK(s.is_ready(1, 50) == Trace{"heartbeat", "stopped has 2"});
  }
}

TEST_CASE("workers that broke while this node was given up wait for no cause") {
  AtWork s;
  s.is_ready(0, 41, "lost rank 0");
  s.is_ready(1, 41, "lost rank 0");
  CHECK(s.reconnects(false) == Trace{"join g1 as 1", "heartbeat", "stopped has 2", "ready"});
}

TEST_CASE("a node that was given up with a dead worker is ready once it has replaced it") {
  AtWork s;
  s.reconnects(false);
  s.is_ready(0, 41);
  CHECK(s.exits(1, 0, SIGKILL) == Trace{"failure r3 signal 9", "heartbeat", "stopped [r3 signal 9] has 1"});
  CHECK(s.waits_outside() == Trace{"warm up #2 (local 1, r3)"});
  CHECK(s.is_ready(1) == Trace{"ready"});
}

TEST_CASE("what an old process says counts for nothing") {
  AtWork s;
  const int old = s.serial(1);
  s.exits(1, 0, SIGKILL);
  s.is_ready(0, 41);
  s.gets(2, 1, 1);
  CHECK(s.happens(event::WorkerReady{.serial = old, .step = 3, .error = ""}).empty());
  CHECK(s.happens(event::WorkerExited{.serial = old, .outcome = {}}).empty());
}

}  // namespace dtrun::agent::test::recovery_test
