// Jobs that a scheduler stops and may start again: the signals of its that count, and the exit codes.
#include <doctest/doctest.h>

#include <csignal>

#include "tests/agent/core/supervisor/scenario.h"

namespace dtrun::agent::test::decide_scheduler_test {

namespace {

Settings in_slurm(Settings settings) {
  settings.may_be_started_again = true;
  return settings;
}

// On the only node.
Scenario at_work(Settings settings) {
  Scenario s(std::move(settings));
  s.joins(1, 0, 1);
  s.state.connection.heartbeat_at.reset();
  return s;
}

}  // namespace

TEST_CASE("told by a scheduler, workers save and the job ends with 75: start me again") {
  for (const int number : {SIGTERM, SIGUSR1, SIGUSR2}) {
    Scenario s = at_work(in_slurm(builtin(1)));
    CHECK(s.happens(event::Signal{number}) == Trace{"signal 15"});
    CHECK(printed(s, "the job may be started again"));
    CHECK(s.exits(0, 75) == Trace{"leave " + std::to_string(number), "end 75"});
  }
  Scenario waits(in_slurm(builtin(1)));
  CHECK(waits.happens(event::Signal{SIGTERM}).back() == "end 75");
}

TEST_CASE("a program gets the signal that came, and may end by it") {
  Scenario s = at_work(in_slurm(external(1)));
  CHECK(s.happens(event::Signal{SIGTERM}) == Trace{"signal 15"});
  CHECK(s.exits(0, 0, SIGTERM).back() == "end 75");
  Scenario itself = at_work(in_slurm(external(1)));
  itself.happens(event::Signal{SIGUSR1});
  CHECK(itself.exits(0, 3).back() == "end 75");
}

TEST_CASE(
    "a person's Ctrl-C and a hangup are no reason to start again, and neither is one outside of Slurm") {
  for (const int number : {SIGINT, SIGHUP, SIGQUIT}) {
    Scenario s = at_work(in_slurm(builtin(1)));
    s.happens(event::Signal{number});
    CHECK(s.exits(0, 75).back() == "end " + std::to_string(128 + number));
  }
  Scenario s = at_work(builtin(1));
  s.happens(event::Signal{SIGTERM});
  CHECK(s.exits(0, 75).back() == "end 143");
}

TEST_CASE("where a worker was killed, or died by itself, nothing is promised") {
  Scenario killed = at_work(in_slurm(builtin(1)));
  killed.happens(event::Signal{SIGUSR1});
  CHECK(killed.passes(30000) == Trace{"signal 9"});
  CHECK(killed.exits(0, 0, SIGKILL).back() == "end 138");
  Scenario died = at_work(in_slurm(builtin(2)));
  died.happens(event::Signal{SIGTERM});
  died.exits(0, 75);
  CHECK(died.exits(1, 0, SIGSEGV).back() == "end 143");
  Scenario program = at_work(in_slurm(external(1)));
  program.happens(event::Signal{SIGTERM});
  program.passes(30000);
  CHECK(program.exits(0, 0, SIGKILL).back() == "end 143");
}

TEST_CASE(
    "the scheduler's later signals hurry nobody: TERM at the time limit, and at the end of a preemption's "
    "grace") {
  Scenario s = at_work(in_slurm(builtin(1)));
  s.happens(event::Signal{SIGUSR1});
  s.now += 28;
  CHECK(s.happens(event::Signal{SIGTERM}) == Trace{});
  s.now += 10000;
  CHECK(s.happens(event::Signal{SIGTERM}) == Trace{});
  CHECK(s.happens(event::Signal{SIGUSR2}) == Trace{});
  CHECK(s.exits(0, 75).back() == "end 75");
}

TEST_CASE("a person's signal after the scheduler's stops at once") {
  Scenario s = at_work(in_slurm(builtin(1)));
  s.happens(event::Signal{SIGTERM});
  s.now += 1000;
  CHECK(s.happens(event::Signal{SIGINT}) == Trace{"drop output", "signal 9"});
  CHECK(s.exits(0, 0, SIGKILL).back() == "end 143");
}

TEST_CASE("the deadline of the first signal holds, whatever comes after it") {
  Scenario s = at_work(in_slurm(builtin(1)));
  s.happens(event::Signal{SIGUSR1});
  s.now += 20000;
  s.happens(event::Signal{SIGTERM});
  CHECK(s.passes(29999) == Trace{});
  CHECK(s.passes(30000) == Trace{"signal 9"});
}

}  // namespace dtrun::agent::test::decide_scheduler_test
