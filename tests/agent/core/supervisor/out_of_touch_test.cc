// A node of a range whose coordinator is out of reach: others may go on without it, so its workers leave
// their generation and wait, and it is taken in again when it is back. No two halves of a cut network go on,
// and no node claims the job's success that cannot know of it.
#include <doctest/doctest.h>

#include <csignal>

#include "tests/agent/core/supervisor/scenario.h"

namespace dtrun::agent::test::out_of_touch_test {

namespace {

Settings of_range(Settings settings) {
  settings.elastic = true;
  return settings;
}

Settings trainer() {
  Settings settings = of_range(builtin(1));
  settings.in_memory_recovery = true;
  return settings;
}

event::Disconnected silent() { return {.why = "the coordinator was silent", .silent = true}; }
event::Disconnected reset() { return {.why = "connection reset"}; }
event::Disconnected unreachable() { return {.why = "no route to host"}; }
event::Disconnected refused() { return {.why = "connection refused", .refused = true}; }

// Its one worker is at work in generation 1.
struct AtWork : Scenario {
  explicit AtWork(const Settings& settings = trainer(), int nodes = 2) : Scenario(settings) {
    joins(1, 0, nodes);
    if (settings.in_memory_recovery) is_ready(0);
    state.connection.heartbeat_at.reset();
  }
  // The coordinator has gone on without this node.
  Trace is_back() {
    Trace trace = happens(event::Opened{});
    happens(event::Connected{});
    for (auto& line : happens(event::JoinAck{"10.0.0.2", 1000000})) trace.push_back(line);
    return trace;
  }
};

}  // namespace

TEST_CASE("a coordinator that fell silent has given this node up: its worker pauses at once, and waits") {
  AtWork s;
  s.now = 15000;
  CHECK(s.happens(silent()) == Trace{});
  CHECK(s.passes(15000) == Trace{"pause"});
  CHECK(s.is_ready(0, 41) == Trace{"heartbeat", "stopped has 1"});
  CHECK(s.passes(16000) == Trace{});
  CHECK(printed(
      s,
      "of this node: the coordinator was silent; others may go on without this node: its workers wait with "
      "their state, trying again for 599 s"));
  s.happens(unreachable());
  CHECK(s.passes(600000) == Trace{});
  CHECK(s.is_back() == Trace{"join g1 as 1", "ready"});
  CHECK(s.assigned(4) == Trace{"start g4 with the same workers", "place #0 as r2", "heartbeat"});
}

TEST_CASE("a connection that broke may be back at once; out of reach for the keep-alive it is as one cut") {
  AtWork s;
  s.happens(reset());
  s.happens(unreachable());
  CHECK(s.passes(14999) == Trace{});
  CHECK(printed(s, "no route to host; workers keep running, trying again for 599 s"));
  CHECK(s.passes(15000) == Trace{"pause"});
  CHECK(printed(s, "of this node: others may go on without this node: its workers wait with their state"));
  // The coordinator may have been stopped as long, and have given nobody up.
  s.happens(event::Opened{});
  s.happens(event::Connected{});
  s.happens(event::JoinAck{.address = "10.0.0.2", .heartbeat_interval = 1000000, .resumed = true});
  CHECK(printed(s, "connected to the coordinator again"));
  CHECK_FALSE(printed(s, "not interrupted"));
  AtWork back;
  back.happens(reset());
  back.passes(14000);
  back.happens(event::Opened{});
  back.happens(event::Connected{});
  back.happens(event::JoinAck{"10.0.0.2", 1000000, true});
  CHECK(back.passes(60000) == Trace{});
}

TEST_CASE("where nobody listens any more nobody can begin without this node: workers run on, for 30 s") {
  AtWork s;
  s.happens(reset());
  s.happens(refused());
  CHECK(s.passes(29999) == Trace{});
  CHECK(s.passes(30000) == Trace{"pause"});
  CHECK(printed(s,
                "the coordinator at 10.0.0.1:29400 is gone: nothing listens there any more. Either the job "
                "has ended, as its terminal says, or start it again on all nodes"));
  s.is_ready(0, 41);
  CHECK(s.exits(0, 75).back() == "end 69");
}

TEST_CASE("a node that finds the coordinator gone once its cable is whole has 30 s from then on") {
  AtWork s;
  s.happens(silent());
  s.passes(0);
  s.is_ready(0, 41);
  s.passes(200000);
  s.happens(refused());
  CHECK(s.passes(229999) == Trace{});
  CHECK(s.passes(230000) == Trace{"signal 15"});
  CHECK(s.exits(0, 75).back() == "end 69");
  // It was in reach for a moment only.
  AtWork again;
  again.happens(silent());
  again.passes(0);
  again.is_ready(0, 41);
  again.passes(200000);
  again.happens(refused());
  again.happens(unreachable());
  CHECK(again.passes(599999) == Trace{});
  CHECK(again.passes(600000) == Trace{"signal 15"});
  CHECK(printed(again, "of this node: the coordinator at "));
  CHECK(printed(again,
                "was out of reach for 600 s: its node is down, or the network between (perhaps this "
                "node's own). The others may go on without this node: started again, it takes part "
                "again"));
  CHECK_FALSE(printed(again, "Start the job again on the nodes that are left"));
}

TEST_CASE("of a fixed number of nodes nobody goes on without this one: workers run on, for 30 s") {
  Settings fixed = trainer();
  fixed.elastic = false;
  AtWork s(fixed);
  s.happens(silent());
  CHECK(s.passes(29999) == Trace{});
  CHECK(s.passes(30000) == Trace{"pause"});
  CHECK(printed(s, "Start the job again on the nodes that are left"));
  AtWork gone(fixed);
  gone.happens(silent());
  gone.passes(20000);
  gone.happens(refused());
  CHECK(gone.passes(29999) == Trace{});
  CHECK(gone.passes(30000) == Trace{"pause"});
}

TEST_CASE("read_timeout is the limit here too") {
  Settings settings = trainer();
  settings.read_timeout = 3000;
  AtWork s(settings);
  s.happens(silent());
  CHECK(s.passes(2999) == Trace{"pause"});
  s.is_ready(0, 41);
  CHECK(s.passes(3000) == Trace{"signal 15"});
}

TEST_CASE("workers that cannot pause are stopped, and started again when this node is back") {
  AtWork s(of_range(external(1)));
  s.happens(silent());
  CHECK(s.passes(0) == Trace{"signal 15"});
  CHECK(s.exits(0, 0, SIGTERM) == Trace{"stopped [r2 signal 15 collateral]"});
  s.passes(1000);
  CHECK(printed(s, "others may go on without this node: its workers are stopped, trying again for 599 s"));
  s.passes(300000);
  CHECK(s.is_back() == Trace{"join g1 as 1"});
  CHECK(s.assigned(3) == Trace{"start g3", "heartbeat"});
}

TEST_CASE("a generation of this node alone is no job of its own while the coordinator is out of reach") {
  AtWork s(trainer(), 1);
  s.happens(silent());
  CHECK(s.passes(0) == Trace{"pause"});
  for (const bool gone : {false, true}) {
    CAPTURE(gone);
    AtWork done(trainer(), 1);
    done.happens(reset());
    done.happens(gone ? refused() : unreachable());
    CHECK(done.exits(0, 0).back() == "finished g1");
    CHECK(done.passes(1000) == (gone ? Trace{"leave 0", "end 0"} : Trace{}));
    if (gone) continue;
    CHECK(done.passes(599999) == Trace{});
    CHECK(done.passes(600000) == Trace{"leave 0", "end 69"});
    CHECK(printed(done, "how the others ended is not known here"));
  }
}

TEST_CASE("a coordinator that still knows this node is told that its workers have left the generation") {
  AtWork s;
  s.happens(silent());
  s.passes(0);
  s.is_ready(0, 41);
  s.happens(event::Opened{});
  s.happens(event::Connected{});
  for (const Action& action : decide(s.state, event::JoinAck{"10.0.0.2", 1000, true}, s.now))
    if (const auto* stopped = std::get_if<action::SendStopped>(&action)) CHECK(stopped->parted);
  CHECK(s.assigned(2) == Trace{"start g2 with the same workers", "place #0 as r2", "heartbeat"});
  CHECK_FALSE(s.state.generation.parted);
}

TEST_CASE("a worker that gets its place while the coordinator is out of reach leaves it at once") {
  Scenario s(trainer());
  s.joins();
  s.state.connection.heartbeat_at.reset();
  s.happens(silent());
  CHECK(s.passes(1000) == Trace{});  // it loads
  CHECK(s.is_ready(0) == Trace{"place #0 as r2"});
  CHECK(s.passes(1000) == Trace{"pause"});
}

TEST_CASE("the job's end, a refusal and a signal are heard by a node that is back as by any other") {
  const auto back = [] {
    AtWork s;
    s.happens(silent());
    s.passes(0);
    s.is_ready(0, 41);
    s.passes(40000);
    return s;
  };
  for (const int code : {0, 3}) {
    AtWork ended = back();
    ended.happens(event::Opened{});
    ended.happens(event::Connected{});
    ended.happens(job_end(code));
    CHECK(ended.exits(0, 75).back() == "end " + std::to_string(code));
  }
  AtWork over = back();
  over.happens(event::Opened{});
  over.happens(event::Connected{});
  over.happens(event::Rejected{69, true, "the run is over"});
  CHECK(over.exits(0, 75).back() == "end 69");
  AtWork told = back();
  told.happens(event::Signal{SIGTERM});
  CHECK(told.exits(0, 75).back() == "end 143");
}

}  // namespace dtrun::agent::test::out_of_touch_test
