#include "agent/core/supervisor/decide.h"

#include <doctest/doctest.h>

#include <csignal>

#include "tests/agent/core/supervisor/scenario.h"

namespace dtrun::agent::test::decide_test {

TEST_CASE("a job that succeeds: join, start, finish, end with 0") {
  Scenario s(builtin());
  CHECK(s.joins() == Trace{"join g0", "start g1", "heartbeat"});
  CHECK(s.exits(0, 0) == Trace{});
  CHECK(s.exits(1, 0) == Trace{"finished g1"});
  s.happens(event::WorkerCompleted{{2345, 0.302, 0.891, "m"}});
  CHECK(s.happens(job_end(0)) == Trace{"end 0"});
  CHECK(printed(s, "done: 2345 steps"));
  CHECK_FALSE(next_deadline(s.state).has_value());
}

TEST_CASE("heartbeats go out at the interval that the coordinator asked for") {
  Scenario s(builtin());
  s.joins();
  CHECK(s.passes(3500) == Trace{"heartbeat", "heartbeat", "heartbeat"});
}

TEST_CASE("the first worker that fails is reported at once and the others are stopped") {
  Scenario s(builtin());
  s.joins();
  CHECK(s.exits(1, 0, SIGKILL) == Trace{"failure r3 signal 9", "abort", "signal 15"});
  CHECK(s.exits(0, 75) == Trace{"stopped [r2 code 75 collateral] [r3 signal 9]"});
  CHECK(s.assigned(2, 1, "rank 3 on b failed, restart 1 of 3") == Trace{"start g2", "heartbeat"});
  CHECK(printed(s, "rank 3 on b failed, restart 1 of 3"));
}

TEST_CASE("a program that is not ours gets SIGTERM only, and its exit after that is collateral") {
  Scenario s(external());
  s.joins();
  CHECK(s.exits(0, 1) == Trace{"failure r2 code 1", "signal 15"});
  CHECK(s.exits(1, 0, SIGTERM) == Trace{"stopped [r2 code 1] [r3 signal 15 collateral]"});
}

TEST_CASE("workers that do not end within the grace are killed") {
  Scenario s(external());
  s.joins();
  s.exits(0, 1);
  s.state.connection.heartbeat_at.reset();
  CHECK(s.passes(29999) == Trace{});
  CHECK(s.passes(30000) == Trace{"signal 9"});
  CHECK(s.exits(1, 0, SIGKILL) == Trace{"stopped [r2 code 1] [r3 signal 9 collateral]"});
}

TEST_CASE("a worker that dies by a signal that we never sent is a failure even while stopping") {
  Scenario s(builtin());
  s.joins();
  s.happens(event::StopOrder{1, "another node failed"});
  CHECK(s.exits(0, 0, SIGSEGV) == Trace{"failure r2 signal 11"});
  CHECK(s.exits(1, 75) == Trace{"stopped [r2 signal 11] [r3 code 75 collateral]"});
}

TEST_CASE("which failures a restart can help") {
  struct Case {
    bool builtin;
    int code;
    bool retryable;
  };
  for (const Case& c : {Case{true, 1, true},
                        {true, 64, false},
                        {true, 66, false},
                        {true, 70, true},
                        {true, 78, false},
                        {false, 1, true},
                        {false, 2, false},
                        {false, 3, true},
                        {false, 63, true},
                        {false, 64, false},
                        {false, 78, false},
                        {false, 79, true}}) {
    CAPTURE(c.builtin);
    CAPTURE(c.code);
    Scenario s(c.builtin ? builtin(1) : external(1));
    s.joins();
    const std::string expected = "failure r2 code " + std::to_string(c.code) + (c.retryable ? "" : " final");
    CHECK(s.exits(0, c.code).front() == expected);
  }
  for (const auto& [line, retryable] :
       std::vector<std::pair<std::string, bool>>{{"SyntaxError: invalid syntax", false},
                                                 {"IndentationError: unexpected indent", false},
                                                 {"TabError: inconsistent use of tabs", false},
                                                 {"ValueError: SyntaxError: x", true},
                                                 {"", true}}) {
    for (const bool of_builtin : {false, true}) {
      Scenario s(of_builtin ? builtin(1) : external(1));
      s.joins();
      event::WorkerExited e;
      e.serial = s.serial(0);
      e.outcome.exit_code = 1;
      e.outcome.stderr_tail = {"  File \"x.py\", line 1", line};
      CHECK(s.happens(e).front() ==
            (retryable || of_builtin ? "failure r2 code 1" : "failure r2 code 1 final"));
    }
  }
  Scenario s(external(1));
  s.joins();
  CHECK(s.exits(0, 127, 0, true).front() == "failure r2 code 127 final");
}

TEST_CASE("the coordinator's stop order stops workers and is answered when they are down") {
  Scenario s(builtin());
  s.joins();
  CHECK(s.happens(event::StopOrder{1, "node c joined"}) == Trace{"abort", "signal 15"});
  CHECK(s.exits(0, 75) == Trace{});
  CHECK(s.exits(1, 0, SIGTERM) == Trace{"stopped [r2 code 75 collateral] [r3 signal 15 collateral]"});
}

TEST_CASE("an assignment that is said again, or late, starts and stops nothing") {
  Scenario s(builtin());
  s.joins();
  CHECK(s.assigned(1) == Trace{});
  s.exits(0, 0);
  CHECK(s.exits(1, 0) == Trace{"finished g1"});
  CHECK(s.assigned(1) == Trace{});
  CHECK(s.assigned(2) == Trace{"start g2", "heartbeat"});
  CHECK(s.assigned(1) == Trace{});
}

TEST_CASE("what one generation reached is not said of the next") {
  Scenario s(builtin(1));
  s.joins();
  s.happens(event::WorkerCompleted{{2345, 0.302, 0.891, "m"}});
  s.exits(0, 0);
  CHECK(s.assigned(2) == Trace{"start g2", "heartbeat"});
  CHECK(s.exits(0, 0) == Trace{"finished g2"});
  CHECK(s.happens(job_end(0)) == Trace{"end 0"});
  CHECK_FALSE(printed(s, "done:"));
}

TEST_CASE("a stop order of an older generation is dropped") {
  Scenario s(builtin());
  s.joins(2);
  CHECK(s.happens(event::StopOrder{1, "late"}) == Trace{});
  CHECK(s.assigned(1) == Trace{});
}

TEST_CASE("workers that stopped because a peer was told to are no failure") {
  Scenario s(builtin());
  s.joins();
  CHECK(s.exits(0, 75) == Trace{});
  CHECK(s.exits(1, 75) == Trace{"stopped [r2 code 75 collateral] [r3 code 75 collateral]"});
}

TEST_CASE("SIGINT reaches the built-in trainer as SIGTERM, and dtrun ends with 130 once workers are down") {
  Scenario s(builtin());
  s.joins();
  CHECK(s.happens(event::Signal{SIGINT}) == Trace{"signal 15"});
  CHECK(s.exits(0, 75) == Trace{});
  CHECK(s.exits(1, 75) == Trace{"leave 2", "end 130"});
}

TEST_CASE("another program gets the signal that dtrun got") {
  Scenario s(external(1));
  s.joins();
  CHECK(s.happens(event::Signal{SIGHUP}) == Trace{"signal 1"});
  CHECK(s.exits(0, 0, SIGHUP) == Trace{"leave 1", "end 129"});
}

TEST_CASE("a second signal cuts the grace short, the same one delivered twice does not") {
  Scenario s(external(1));
  s.joins();
  s.happens(event::Signal{SIGTERM});
  s.now = 10;
  CHECK(s.happens(event::Signal{SIGTERM}) == Trace{});
  s.now = 600;
  CHECK(s.happens(event::Signal{SIGINT}) == Trace{"drop output", "signal 9"});
  CHECK(s.exits(0, 0, SIGKILL) == Trace{"leave 15", "end 143"});
}

TEST_CASE("whoever waits for workers that take their time is told why they are being stopped") {
  Scenario s(external());
  s.joins();
  s.exits(1, 3);
  s.passes(3000);
  CHECK(s.printed == Trace{"rank 3 ended with exit code 3; 1 worker to end yet, killed in 27 s"});
  CHECK(s.happens(event::StopOrder{1, "rank 3 on b failed (exit code 3)"}).empty());
  s.passes(20000);
  CHECK(s.printed.size() == 1);
}

TEST_CASE("a signal while a failed job's workers are being stopped does not hide the failure") {
  Scenario s(external());
  s.joins(1, 0, 1);
  s.exits(1, 3);
  s.now = 1000;
  CHECK(s.happens(event::Signal{SIGINT}) == Trace{"signal 2"});
  CHECK(s.printed == Trace{"rank 3 ended with exit code 3; 1 worker to end yet, killed in 29 s",
                           "stopping 1 worker after SIGINT (at most 29 s; a second signal stops at once)"});
  CHECK(s.exits(0, 0, SIGTERM) == Trace{"leave 2", "report r3 code 3", "end 130"});
}

TEST_CASE(
    "where other nodes may know an earlier failure, a signal ends a node without naming its own as first") {
  Scenario s(external());
  s.joins(1, 0, 2);
  s.exits(1, 3);
  s.happens(event::Signal{SIGINT});
  CHECK(s.printed.front() == "rank 3 ended with exit code 3; 1 worker to end yet, killed in 30 s");
  CHECK(s.exits(0, 0, SIGTERM) == Trace{"leave 2", "end 130"});
}

TEST_CASE("a signal during the rendezvous ends dtrun at once") {
  Scenario s(builtin());
  s.happens(event::Connected{});
  CHECK(s.happens(event::Signal{SIGTERM}) == Trace{"leave 15", "end 143"});
}

TEST_CASE("no coordinator within the join timeout is exit code 69 with the reason") {
  Settings settings = builtin();
  settings.join_timeout = 12000;
  Scenario s(settings);
  s.happens(event::Disconnected{"10.0.0.1:29400: connection refused", false});
  CHECK(s.passes(11999) == Trace{});
  CHECK(printed(s, "connection refused; trying for another 7 s"));
  CHECK(s.passes(12000) == Trace{"leave 0", "end 69"});
  CHECK(printed(s, "10.0.0.1:29400: connection refused; gave up after 12 s"));
}

TEST_CASE("a connection that no coordinator answers is told to join, and counts as no coordinator") {
  Settings settings = builtin();
  settings.join_timeout = 120000;
  Scenario s(settings);
  CHECK(s.happens(event::Opened{}) == Trace{"join g0"});
  s.happens(event::Disconnected{"10.0.0.1:29400 does not answer", false});
  CHECK(s.passes(60000) == Trace{});  // longer than a coordinator that had been there is waited for
  CHECK(s.happens(event::Opened{}) == Trace{"join g0"});
  CHECK(s.passes(120000) == Trace{"leave 0", "end 69"});
}

TEST_CASE("an endpoint that can never work ends dtrun at once") {
  Scenario s(builtin());
  CHECK(s.happens(event::Disconnected{"something else listens there", true}) == Trace{"leave 0", "end 69"});
}

TEST_CASE(
    "waiting says how many joined, where, and how long it lasts, ever more rarely until there is news") {
  Scenario s(builtin());
  s.happens(event::Connected{});
  s.happens(event::JoinAck{"10.0.0.2", 60000});
  s.happens(waiting(1, 2));
  CHECK(s.printed.back() == "joined 1 of 2 nodes at 10.0.0.1:29400, this node as 10.0.0.2; 600 s left");
  s.happens(waiting(1, 2));
  CHECK(s.printed.size() == 1);
  const auto left = [&] { return s.printed.back().substr(s.printed.back().rfind("; ") + 2); };
  std::size_t said = 1;
  for (const auto& [at, text] : std::vector<std::pair<dtrun::Millis, std::string>>{{5000, "595 s left"},
                                                                                   {15000, "585 s left"},
                                                                                   {45000, "555 s left"},
                                                                                   {105000, "495 s left"},
                                                                                   {165000, "435 s left"}}) {
    s.passes(at - 1);
    CHECK(s.printed.size() == said);
    s.passes(at);
    CHECK(s.printed.size() == ++said);
    CHECK(left() == text);
  }
  s.happens(waiting(2, 3));
  CHECK(s.printed.size() == ++said);
  s.passes(170000);
  CHECK(s.printed.size() == ++said);
}

TEST_CASE("an agent that lost its connection says that it waits again once its workers are gone") {
  Scenario s(builtin(1));
  s.joins();
  CHECK(s.reconnects(false) == Trace{"join g1 as 1", "abort", "signal 15"});
  s.printed.clear();
  s.happens(waiting(2, 2));
  CHECK(s.printed.empty());
  CHECK(s.exits(0, 75) == Trace{"stopped [r2 code 75 collateral]"});
  REQUIRE(s.printed.size() == 1);
  CHECK(s.printed[0].starts_with("joined 2 of 2 nodes"));
}

TEST_CASE("workers outlive the loss of the coordinator: a short one goes without a word") {
  Scenario s(builtin());
  s.joins();
  s.state.connection.heartbeat_at.reset();
  CHECK(s.happens(event::Disconnected{"connection reset", false}) == Trace{});
  CHECK(s.passes(900) == Trace{});
  CHECK(s.happens(event::Opened{}) == Trace{"join g1 as 1"});
  s.happens(event::Connected{});
  CHECK(s.happens(event::JoinAck{"10.0.0.2", 1000, true}) == Trace{"heartbeat"});
  CHECK(s.printed.empty());
  CHECK(s.passes(1500).empty());
}

TEST_CASE("a longer loss of the coordinator is told, and its end too") {
  Scenario s(builtin());
  s.joins();
  s.happens(event::Disconnected{"connection reset", false});
  CHECK(s.passes(2000) == Trace{});
  CHECK(printed(s, "connection reset; workers keep running, trying again for 29 s"));
  s.happens(event::Connected{});
  s.happens(event::JoinAck{"10.0.0.2", 1000, true});
  CHECK(printed(s, "the workers were not interrupted"));
}

TEST_CASE("what ended while the coordinator was away is said once it is back") {
  Scenario s(builtin());
  s.joins();
  s.happens(event::Disconnected{"connection reset", false});
  s.exits(1, 0, SIGKILL);
  CHECK(s.happens(event::Opened{}) == Trace{"join g1 as 1"});
  s.happens(event::Connected{});
  CHECK(s.happens(event::JoinAck{"10.0.0.2", 1000, true}) == Trace{"failure r3 signal 9", "heartbeat"});
  CHECK(s.exits(0, 75) == Trace{"stopped [r2 code 75 collateral] [r3 signal 9]"});
  CHECK(s.reconnects(true) == Trace{"join g1 as 1", "failure r3 signal 9",
                                    "stopped [r2 code 75 collateral] [r3 signal 9]", "heartbeat"});

  Scenario finished(builtin(1));
  finished.joins();
  CHECK(finished.exits(0, 0) == Trace{"finished g1"});
  CHECK(finished.reconnects(true) == Trace{"join g1 as 1", "finished g1", "heartbeat"});
}

TEST_CASE("workers make way when the coordinator went on without this node") {
  Scenario s(builtin());
  s.joins();
  CHECK(s.reconnects(false) == Trace{"join g1 as 1", "abort", "signal 15"});
  CHECK(s.assigned(2) == Trace{});
  s.exits(0, 75);
  CHECK(s.exits(1, 75) ==
        Trace{"stopped [r2 code 75 collateral] [r3 code 75 collateral]", "start g2", "heartbeat"});
}

TEST_CASE("a `dtrun store` that is gone is waited for as long as nodes are") {
  Settings settings = builtin();
  settings.join_timeout = 100000;
  Scenario s(settings);
  s.joins();
  s.happens(event::JoinAck{"10.0.0.2", 1000, true, true});
  s.happens(event::Disconnected{"connection refused", false});
  CHECK(s.passes(99999) == Trace{});
  CHECK(s.passes(100000) == Trace{"abort", "signal 15"});
  CHECK(printed(s, "the store at 10.0.0.1:29400 was out of reach for 100 s"));
}

TEST_CASE("read_timeout says how long a lost coordinator is waited for, whoever hosts it") {
  for (const bool separate : {false, true}) {
    CAPTURE(separate);
    Settings settings = builtin(1);
    settings.read_timeout = 3000;
    Scenario s(settings);
    s.joins();
    s.happens(event::JoinAck{"10.0.0.2", 1000, true, separate});
    s.happens(event::Disconnected{"connection refused", false});
    CHECK(s.passes(2999) == Trace{});
    CHECK(printed(s, "workers keep running, trying again for 2 s"));
    CHECK(s.passes(3000) == Trace{"abort", "signal 15"});
    CHECK(s.exits(0, 75).back() == "end 69");
  }
}

TEST_CASE("a node that has done its part waits for a lost coordinator as long as those that have not") {
  Scenario s(builtin(1));
  s.joins();
  s.happens(event::Disconnected{"connection refused", false});
  CHECK(s.exits(0, 0) == Trace{"finished g1"});
  CHECK(s.passes(29999) == Trace{});
  CHECK(printed(s, "the workers of this node are done, those of others may still need it"));
  CHECK(s.passes(30000) == Trace{"leave 0", "end 69"});
  CHECK(printed(s, "how the others ended is not known here"));
}

TEST_CASE("a node that had all the workers knows how the job ended, with or without a coordinator") {
  Scenario s(builtin(1));
  s.joins(1, 0, 1);
  s.happens(event::WorkerCompleted{{2345, 0.302, 0.891, "m"}});
  CHECK(s.exits(0, 0) == Trace{"heartbeat", "finished g1"});
  s.happens(event::Disconnected{"connection refused", false});
  CHECK(s.passes(999) == Trace{});  // it may be back in a moment
  CHECK(s.passes(1000) == Trace{"leave 0", "end 0"});
  CHECK(printed(s, "done: 2345 steps"));
  CHECK(printed(s, "connection refused, but all workers of the job ended with 0"));

  Scenario later(builtin(1));
  later.joins(1, 0, 1);
  later.happens(event::Disconnected{"connection refused", false});
  later.passes(20000);
  CHECK(later.exits(0, 0) == Trace{"finished g1"});
  CHECK(later.passes(20000) == Trace{"leave 0", "end 0"});
}

TEST_CASE("workers that were stopped have not done their part, even if they ended with 0") {
  Scenario s(external(1));
  s.joins(1, 0, 1);
  s.happens(event::StopOrder{1, "node c joined"});
  CHECK(s.exits(0, 0).back().starts_with("stopped"));
  s.happens(event::Disconnected{"connection refused", false});
  CHECK(s.passes(29999) == Trace{});
}

TEST_CASE("the first progress is told at once, further progress at most once a second") {
  Scenario s(builtin());
  s.joins();
  s.state.generation.assignment.group_rank = 0;
  s.happens(event::JoinAck{"10.0.0.2", 5000, true});
  s.now = 400;
  CHECK(s.progressed(0) == Trace{"heartbeat"});
  s.now = 500;
  CHECK(s.progressed(1) == Trace{"heartbeat"});  // the first step, after loading
  s.now = 1499;
  CHECK(s.progressed(2) == Trace{});
  s.now = 1500;
  CHECK(s.progressed(3) == Trace{"heartbeat"});
  CHECK(s.passes(6499) == Trace{});
  CHECK(s.passes(6500) == Trace{"heartbeat"});
  s.happens(event::Disconnected{"connection reset", false});
  CHECK(s.progressed(4) == Trace{});
}

TEST_CASE("of the nodes without rank 0 only the first progress is told at once, the rest at the next beat") {
  Scenario s(builtin());
  s.joins();
  s.happens(event::JoinAck{"10.0.0.2", 5000, true});
  CHECK(s.progressed(1) == Trace{"heartbeat"});
  s.now = 4999;
  CHECK(s.progressed(7) == Trace{});
  s.now = 5000;
  const auto actions = decide(s.state, event::Tick{}, s.now);
  REQUIRE(actions.size() == 1);
  CHECK(std::get<action::SendHeartbeat>(actions[0]).progress->step == 7);
}

TEST_CASE("a new generation has made no progress yet") {
  Scenario s(builtin(1));
  s.joins();
  s.progressed(7);
  s.exits(0, 0);
  s.assigned(2);
  s.now = 1000;
  const auto actions = decide(s.state, event::Tick{}, s.now);
  REQUIRE(actions.size() == 1);
  CHECK_FALSE(std::get<action::SendHeartbeat>(actions[0]).progress);
}

TEST_CASE("a failure that no report told of is told to programs at the end") {
  const auto last = [](Scenario& s, const Event& event) {
    const auto actions = decide(s.state, event, s.now);
    REQUIRE_FALSE(actions.empty());
    return std::get<action::End>(actions.back());
  };
  Scenario refused(builtin());
  const auto given_up = last(refused, event::Rejected{78, false, "another config"});
  REQUIRE(given_up.unreported);
  CHECK(given_up.unreported->exit_code == 78);
  CHECK(given_up.unreported->reason == "another config");
  Scenario told(external(1));
  told.joins(1, 2);
  told.happens(event::Signal{SIGINT});
  event::WorkerExited gone{.serial = told.serial(0), .outcome = {}};
  gone.outcome.signal = SIGINT;
  const auto stopped = last(told, gone);
  REQUIRE(stopped.unreported);
  CHECK(stopped.unreported->exit_code == 130);
  CHECK(stopped.unreported->reason == "stopped by SIGINT");
  CHECK(stopped.unreported->restart_count == 2);
  Scenario reported(builtin(1));
  CHECK_FALSE(last(reported, job_end(69)).unreported);
  Scenario good(builtin(1));
  CHECK_FALSE(last(good, job_end(0)).unreported);
}

TEST_CASE("nobody looks for hangs among workers that are being stopped") {
  Scenario s(builtin());
  s.joins();
  CHECK(hangs_matter(s.state));
  s.exits(0, 75);  // the peers agreed to stop: no signal was sent
  CHECK_FALSE(hangs_matter(s.state));
  s.exits(1, 75);
  s.assigned(2);
  CHECK(hangs_matter(s.state));
}

TEST_CASE("a join after a reconnect says how old the generation is") {
  Scenario s(builtin());
  s.now = 1000;
  s.joins();
  s.now = 8000;
  s.happens(event::Disconnected{"connection reset", false});
  const auto actions = decide(s.state, event::Opened{}, s.now);
  REQUIRE(actions.size() == 1);
  CHECK(std::get<action::SendJoin>(actions[0]).age == 7000);
}

TEST_CASE("the back-off before a restart is told once") {
  Scenario s(external(1));
  s.joins();
  s.exits(0, 1);
  s.happens(waiting(2, 2, 2000, "rank 2 on b failed, restart 2 of 3"));
  s.happens(waiting(2, 2, 1000, "rank 2 on b failed, restart 2 of 3"));
  CHECK(s.printed == Trace{"rank 2 on b failed, restart 2 of 3 in 2 s"});
}

TEST_CASE("--no-restart-exit-codes says which failures of a program a restart cannot cure") {
  Settings settings = external(1);
  settings.no_restart_exit_codes = {{9, 11}};
  for (int code : {2, 9, 10, 11, 12, 64}) {
    CAPTURE(code);
    Scenario s(settings);
    s.joins();
    const bool final = code >= 9 && code <= 11;
    CHECK(s.exits(0, code).front() == "failure r2 code " + std::to_string(code) + (final ? " final" : ""));
  }
}

TEST_CASE("a coordinator that is gone for good ends the job with 69 and says what was lost") {
  Scenario s(builtin());
  s.joins();
  s.happens(event::Disconnected{"connection refused", false});
  CHECK(s.passes(30000) == Trace{"abort", "signal 15"});
  s.exits(0, 75);
  CHECK(s.exits(1, 75) == Trace{"leave 0", "end 69"});
  CHECK(printed(s, "its agent or node is down, or the network between"));
}

TEST_CASE("a refusal ends dtrun with the code of its kind") {
  Scenario s(builtin());
  s.happens(event::Connected{});
  CHECK(s.happens(event::Rejected{78, false, "another config"}) == Trace{"leave 0", "end 78"});
  CHECK(printed(s, "another config"));
}

TEST_CASE("a failed job ends every agent with the first failure's exit code and the report") {
  Scenario s(external(1));
  s.joins();
  s.exits(0, 3);
  event::Ended end = job_end(3);
  end.job.first_failure = WorkerOutcome{};
  end.job.first_failure->exit_code = 3;
  end.job.first_failure->host = "b";
  CHECK(s.happens(end) == Trace{"report r0 code 3", "end 3"});
}

TEST_CASE("the agent that hosts the coordinator ends last") {
  Scenario s(external(1));
  s.hosting = true;
  s.joins();
  s.exits(0, 0);
  s.state.connection.heartbeat_at.reset();
  CHECK(s.happens(job_end(0)) == Trace{"await members"});
  CHECK(s.passes(2500) == Trace{});
  CHECK(printed(s, "waiting for the other nodes"));
  CHECK(s.happens(event::MembersLeft{}) == Trace{"end 0"});
}

TEST_CASE("the job's end while workers run stops them first") {
  Scenario s(external(1));
  s.joins();
  CHECK(s.happens(job_end(69)) == Trace{"signal 15"});
  CHECK(s.exits(0, 0, SIGTERM) == Trace{"report the reason", "end 69"});
}

}  // namespace dtrun::agent::test::decide_test
