// The agent's decisions at a run's end: messages and exit codes.
#include <doctest/doctest.h>
#include <signal.h>

#include "agent/core/supervisor/decide.h"
#include "tests/agent/core/supervisor/scenario.h"

namespace dtrun::agent::test::decide_end_test {

namespace {

event::Assigned as_first_node(std::int64_t generation, int restarts) {
  Assignment assignment;
  assignment.generation = generation;
  assignment.node = {"a", "10.0.0.1", 1, 0};
  assignment.restart_count = restarts;
  assignment.reason = "because";
  return {assignment};
}

// A run of one worker whose first generation fails after 120 steps, and whose second resumes from step 100.
void fail_once(Scenario& s) {
  s.happens(as_first_node(1, 0));
  s.trained(0, 120);
  s.exits(0, 1);
  s.happens(as_first_node(2, 1));
  s.trained(100, 105);
}

event::Ended after_one_restart() {
  event::Ended end;
  end.job.restart_count = 1;
  end.job.goodput.steps_redone = 20;
  return end;
}

}  // namespace

TEST_CASE("the end of a training says how long it took, and what was done again after a restart") {
  Scenario s(builtin(1));
  fail_once(s);
  dtrun::Completion completion;
  completion.step = 300;
  completion.first_step = 100;
  s.happens(event::WorkerCompleted{completion});
  s.exits(0, 0);
  s.now = 12300;
  s.happens(after_one_restart());
  CHECK(
      printed(s, "done: 300 steps, loss 0.000\n  12.3 s in all\n  1 restart; at least 20 steps done again"));
}

TEST_CASE("where the model is, the reader on another host is told with the host's name") {
  for (const bool launched : {false, true}) {
    for (const int nodes : {1, 2}) {
      Settings settings = builtin(1);
      settings.begin_together = launched;
      settings.host = "node7";
      Scenario s(settings);
      event::Assigned first = as_first_node(1, 0);
      first.assignment.node_count = nodes;
      s.happens(first);
      dtrun::Completion completion;
      completion.model_path = "o1/model.safetensors";
      s.happens(event::WorkerCompleted{completion});
      s.exits(0, 0);
      s.happens(event::Ended{});
      const bool elsewhere = launched || nodes > 1;
      CHECK(printed(s, "model in o1/model.safetensors" + std::string(elsewhere ? " on node7" : "\n")));
    }
  }
}

TEST_CASE("the node whose worker did not complete the training leaves the summary to the one that did") {
  Scenario s(builtin(1));
  fail_once(s);
  s.exits(0, 0);
  s.happens(after_one_restart());
  CHECK_FALSE(printed(s, "done"));
}

TEST_CASE("the first node of another program's run says how long it took, if there were restarts") {
  Scenario first(external(1));
  fail_once(first);
  first.exits(0, 0);
  first.happens(after_one_restart());
  CHECK(printed(first, "done: 0.0 s in all, 1 restart"));
  Scenario second(external(1));
  second.joins();
  second.exits(0, 0);
  second.happens(after_one_restart());
  CHECK_FALSE(printed(second, "done"));
}

TEST_CASE("the reason of a node's end is told as an error, a success is not") {
  Scenario s(builtin(2));
  s.happens(event::Connected{});
  const auto actions = decide(s.state, event::Rejected{78, false, "another config"}, 0);
  CHECK(std::get<action::Print>(actions.front()).error);
  Scenario done(builtin(1));
  done.joins(1, 0, 1);
  done.exits(0, 0);
  done.happens(event::Disconnected{"connection refused", false});
  done.now = 1000;
  for (const Action& action : decide(done.state, event::Tick{}, done.now))
    if (const auto* print = std::get_if<action::Print>(&action)) CHECK_FALSE(print->error);
}

TEST_CASE("that the job ended meanwhile is a success only of a node whose workers all did") {
  const auto end_of = [](bool job_over, bool did_its_part) {
    Scenario s(builtin(1));
    s.joins();
    if (did_its_part) s.exits(0, 0);
    s.happens(event::Disconnected{"connection refused", false});
    Trace trace = s.happens(event::Rejected{69, job_over, "the run is over"});
    if (!did_its_part) trace = s.exits(0, 143);
    return trace.empty() ? "" : trace.back();
  };
  CHECK(end_of(true, true) == "end 0");
  CHECK(end_of(true, false) == "end 69");
  CHECK(end_of(false, true) == "end 69");
}

TEST_CASE("how the run ended is known from the coordinator, or because it goes down with this node") {
  const auto end_of = [](Scenario& s, const Event& event) {
    for (const Action& action : decide(s.state, event, s.now))
      if (const auto* end = std::get_if<action::End>(&action)) return *end;
    FAIL("the agent did not end");
    return action::End{};
  };
  Scenario told(builtin(1));
  event::Ended failed;
  failed.job.exit_code = 69;
  const auto by_coordinator = end_of(told, failed);
  REQUIRE(by_coordinator.run);
  CHECK(by_coordinator.run->exit_code == 69);
  Scenario guest(builtin(1));
  CHECK_FALSE(end_of(guest, event::Signal{SIGINT}).run);
  Scenario host(builtin(1));
  host.happens(event::Opened{.hosting = true});
  const auto by_signal = end_of(host, event::Signal{SIGINT});
  REQUIRE(by_signal.run);
  CHECK(by_signal.run->exit_code == 130);
  CHECK(by_signal.run->reason == "stopped by SIGINT");
}

}  // namespace dtrun::agent::test::decide_end_test
