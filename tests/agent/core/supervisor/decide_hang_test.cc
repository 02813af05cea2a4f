// A hang: every node looks at its workers before the first of them is ended.
#include <csignal>

#include "tests/agent/core/supervisor/scenario.h"

namespace dtrun::agent::test::decide_hang_test {

namespace {

event::HangFound found(std::vector<int> local_ranks) {
  event::HangFound e{.generation = 1, .hung = {}};
  for (int local_rank : local_ranks) {
    WorkerOutcome outcome;
    outcome.local_rank = local_rank;
    outcome.signal = SIGKILL;
    outcome.cause = dtrun::EndCause::kHung;
    outcome.where = "sleep at a.py:1";
    e.hung.push_back(outcome);
  }
  return e;
}

}  // namespace

TEST_CASE("the only node kills its hung workers at once, and tells of one failure") {
  Scenario s(external());
  s.joins(1, 0, 1);
  CHECK(s.happens(found({0, 1})) == Trace{"failure r2 signal 9", "kill hung"});
  CHECK(s.happens(event::StopOrder{1, "because", true}) == Trace{});
  CHECK(s.exits(0, 0, SIGKILL) == Trace{"signal 15"});
  CHECK(s.exits(1, 0, SIGKILL) == Trace{"stopped [r2 signal 9] [r3 signal 9]"});
}

TEST_CASE("of several nodes each gives the others 5 s to look") {
  Scenario s(external());
  s.joins();
  const dtrun::Millis then = s.now;
  CHECK(s.happens(found({0, 1})) == Trace{"failure r2 signal 9"});
  CHECK_FALSE(hangs_matter(s.state));
  CHECK(s.happens(event::StopOrder{1, "because", true}) == Trace{});
  const auto killed = [](const Trace& trace) {
    return std::find(trace.begin(), trace.end(), "kill hung") != trace.end();
  };
  CHECK_FALSE(killed(s.passes(then + 4999)));
  CHECK(killed(s.passes(then + 5000)));
}

TEST_CASE("a node that is told of a hang elsewhere looks for 5 s, then stops its workers") {
  Scenario s(external());
  s.joins();
  const dtrun::Millis then = s.now;
  CHECK(s.happens(event::StopOrder{1, "ranks hang", true}) == Trace{"look 5000"});
  CHECK_FALSE(hangs_matter(s.state));
  CHECK(s.happens(event::StopOrder{1, "ranks hang", true}) == Trace{});  // again, after a reconnect
  const auto stops = [](const Trace& trace) {
    return std::find(trace.begin(), trace.end(), "signal 15") != trace.end();
  };
  CHECK_FALSE(stops(s.passes(then + 4999)));
  CHECK(stops(s.passes(then + 5000)));
  CHECK(s.exits(0, 0, SIGTERM) == Trace{});
  CHECK(s.exits(1, 0, SIGTERM) == Trace{"stopped [r2 signal 15 collateral] [r3 signal 15 collateral]"});
}

TEST_CASE("a worker that fails meanwhile ends the wait, and so does a signal") {
  Scenario failed(external()), told(external());
  for (Scenario* s : {&failed, &told}) {
    s->joins();
    s->happens(event::StopOrder{1, "ranks hang", true});
  }
  CHECK(failed.exits(0, 1) == Trace{"failure r2 code 1", "signal 15"});
  CHECK(told.happens(event::Signal{SIGINT}) == Trace{"signal 2"});
  for (Scenario* s : {&failed, &told}) {
    for (const std::string& line : s->passes(s->now + 6000))
      CHECK((line == "heartbeat" || line == "leave soon 2"));
  }
}

TEST_CASE("a hang of workers that are being stopped, or of an earlier generation, is none") {
  Scenario s(external());
  s.joins();
  event::HangFound old = found({0});
  old.generation = 0;
  CHECK(s.happens(old) == Trace{});
  s.happens(event::StopOrder{1, "because"});
  CHECK(s.happens(found({0})) == Trace{});
}

TEST_CASE("silence tells who hangs of the built-in trainer, and of a program without other nodes") {
  Scenario trainer(builtin()), program(external()), alone(external());
  trainer.joins();
  program.joins();
  alone.joins(1, 0, 1);
  CHECK(silence_tells(trainer.state));
  CHECK_FALSE(silence_tells(program.state));
  CHECK(silence_tells(alone.state));
}

}  // namespace dtrun::agent::test::decide_hang_test
