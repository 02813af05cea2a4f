// Nodes that are replaced by the system that started them, as Kubernetes does with pods: a coordinator that
// is stopped comes back, and a job that failed does not look like a lost node.
#include <doctest/doctest.h>

#include <csignal>

#include "tests/agent/core/supervisor/scenario.h"

namespace dtrun::agent::test::decide_replaced_test {

namespace {

Settings in_pod(Settings settings) {
  settings.is_replaced = true;
  return settings;
}

event::Ended failed(int exit_code, int signal = 0) {
  event::Ended e;
  e.job.exit_code = signal != 0 ? 128 + signal : exit_code;
  e.job.first_failure.emplace().exit_code = exit_code;
  e.job.first_failure->signal = signal;
  return e;
}

// The exit code of a node of one worker at work that hears this.
std::string end_after(Settings settings, const event::Ended& ended) {
  Scenario s(std::move(settings));
  s.joins();
  s.happens(ended);
  return s.exits(0, 0, SIGTERM).back();
}

}  // namespace

TEST_CASE("a host that is told to stop says that another one comes, unless a person stops it") {
  for (const int number : {SIGTERM, SIGHUP, SIGUSR1}) {
    Scenario s(in_pod(external(1)));
    s.hosting = true;
    s.joins();
    s.happens(event::Signal{number});
    CHECK(s.exits(0, 0, SIGTERM) == Trace{"leave " + std::to_string(number) + " replaced", "await members"});
    // Its last words are on their way for a second.
    CHECK(s.passes(999) == Trace{});
    CHECK(s.passes(1000).back() == "end " + std::to_string(128 + number));
  }
  Scenario by_hand(in_pod(external(1)));
  by_hand.hosting = true;
  by_hand.joins();
  by_hand.happens(event::Signal{SIGINT});
  CHECK(by_hand.exits(0, 0, SIGINT) == Trace{"leave 2", "await members"});
  Scenario cannot(in_pod(external(1)));
  cannot.hosting = true;
  cannot.joins();
  CHECK(cannot.happens(event::Rejected{78, false, "another config"}).front() == "signal 15");
  CHECK(cannot.exits(0, 0, SIGTERM) == Trace{"leave 0", "await members"});
}

TEST_CASE("the run of a host that is told to stop has not ended with it") {
  for (const bool replaced : {true, false}) {
    Scenario s(replaced ? in_pod(builtin(1)) : builtin(1));
    s.hosting = true;
    s.happens(event::Opened{true});
    const auto actions = decide(s.state, event::Signal{SIGTERM}, s.now);
    CHECK(std::get<action::End>(actions.back()).run.has_value() == !replaced);
  }
}

TEST_CASE(
    "the next coordinator is waited for as long as for nodes, and then its end is told for what it is") {
  Scenario s(in_pod(builtin(1)));
  s.joins();
  s.state.connection.heartbeat_at.reset();
  s.happens(event::Disconnected{"connection refused", false});
  CHECK(s.passes(599999) == Trace{});
  CHECK(s.passes(600000) == Trace{"abort", "signal 15"});
  CHECK(s.exits(0, 75).back() == "end 69");
  CHECK(printed(s, "its agent or node is down and no other came in its place"));
  Settings given = in_pod(builtin(1));
  given.read_timeout = 3000;
  Scenario chosen(given);
  chosen.joins();
  chosen.happens(event::Disconnected{"connection refused", false});
  CHECK(chosen.passes(2999) == Trace{});
  CHECK(chosen.passes(3000) == Trace{"abort", "signal 15"});
}

TEST_CASE("a failed job does not end with what would be taken for a lost node, and says so") {
  for (const int code : {69, 75, 137, 143, 255}) {
    CHECK(end_after(in_pod(external(1)), failed(code)) == "end 1");
    CHECK(end_after(external(1), failed(code)) == "end " + std::to_string(code));
  }
  CHECK(end_after(in_pod(external(1)), failed(0, SIGKILL)) == "end 1");
  CHECK(end_after(in_pod(external(1)), failed(0, SIGABRT)) == "end 134");
  CHECK(end_after(in_pod(external(1)), failed(66)) == "end 66");

  Scenario s(in_pod(external(1)));
  s.joins();
  s.happens(failed(0, SIGKILL));
  CHECK(printed(s, "exit code 1 in place of the worker's 137, which would be taken for a lost node"));
  // The report has what the worker ended with.
  CHECK(s.exits(0, 0, SIGTERM).front() == "report r0 signal 9");
}

TEST_CASE("too few nodes are a reason to be started again, in a pod too; so is a signal") {
  CHECK(end_after(in_pod(external(1)), job_end(69)) == "end 69");
  Scenario told(in_pod(external(1)));
  told.joins();
  told.happens(event::Signal{SIGTERM});
  CHECK(told.exits(0, 0, SIGTERM).back() == "end 143");
}

TEST_CASE("a node that can load nothing does not end as if it were lost either") {
  for (const bool replaced : {true, false}) {
    Settings settings = replaced ? in_pod(builtin(1)) : builtin(1);
    settings.in_memory_recovery = true;
    Scenario s(settings);
    s.happens(event::Opened{});
    s.happens(event::Connected{});
    s.happens(event::JoinAck{"10.0.0.2", 1000000});
    event::WaitStatus wait = waiting(2, 2);
    wait.run_goes_on = true;
    s.happens(wait);
    Trace trace;
    for (int i = 0; i < 10 && (trace.empty() || !trace.back().starts_with("end")); ++i)
      trace = s.exits(0, 0, SIGKILL);
    CHECK(trace.back() == (replaced ? "end 1" : "end 137"));
  }
}

}  // namespace dtrun::agent::test::decide_replaced_test
