// The time of a run by its use, as heartbeats and the coordinator's own state tell it.
#include <doctest/doctest.h>

#include <limits>
#include <string>

#include "rendezvous/core/run/state.h"

namespace dtrun::rendezvous::goodput_test {
namespace {

using Doing = Progress::Phase;

// A run of nodes with one worker each, on a clock in milliseconds.
class Run {
 public:
  Join join_of(int node) const {
    Join join;
    join.member_id = "m" + std::to_string(node);
    join.host = "node" + std::to_string(node);
    join.address = "10.0.0.1";
    join.min_nodes = min_nodes;
    join.max_nodes = max_nodes;
    join.max_restarts = 10;
    join.heartbeat_timeout = 1000000;
    join.join_timeout = 1000000;
    join.command = command;
    return join;
  }

  void joins(int node) { happens(node, join_of(node)); }
  void reports(int node, Progress progress) { happens(node, Heartbeat{.pids = {1}, .progress = progress}); }
  void fails(int node) {
    WorkerOutcome outcome;
    outcome.rank = state.members.at(node).seat.value();
    outcome.exit_code = ++failures;  // never alike
    outcome.uptime_s = 100;
    happens(node, Failure{outcome});
  }
  void happens(int node, decltype(Event::body) body) {
    step(state,
         {.from = static_cast<ConnectionId>(node), .generation = state.generation, .body = std::move(body)},
         now);
  }
  Goodput spent() const { return goodput_of(state, now); }
  // "5000 waiting, 8000 training": what it did from when on.
  std::string life() const {
    std::string text;
    for (const LifeSpan& span : state.history.life().spans())
      text += (text.empty() ? "" : ", ") + std::to_string(span.begin) + " " +
              (span.kind != nullptr ? span.kind->name : "over");
    return text;
  }

  int min_nodes = 1, max_nodes = 1;
  std::vector<std::string> command = {};
  State state;
  Millis now = 5000;
  int failures = 0;
};

Progress at(Doing phase, std::int64_t first_step, std::int64_t step, PhaseTimes times) {
  return {.phase = phase, .step = step, .total_steps = 1000, .first_step = first_step, .times = times};
}

}  // namespace

TEST_CASE("a generation's time is as its worker says; before its account it loads, and since it goes on so") {
  Run run;
  run.joins(1);
  run.now += 2000;
  CHECK(run.spent() == Goodput{.loading = 2});
  run.now += 8000;
  run.reports(1,
              at(Doing::kTraining, 0, 40, {.loading = 1, .training = 7, .evaluating = 0.5, .saving = 0.25}));
  CHECK(run.spent() ==
        Goodput{.training = 7, .loading = 2.25, .evaluating = 0.5, .saving = 0.25, .best_step = 40});
  run.now += 1000;
  CHECK(run.spent().training == 8);
  run.reports(
      1, at(Doing::kEvaluating, 0, 48, {.loading = 1, .training = 8, .evaluating = 0.5, .saving = 0.25}));
  run.now += 1000;
  CHECK(run.spent().evaluating == 1.5);
  CHECK(run.spent().total() == 12);
  CHECK(run.spent().ratio() == doctest::Approx(8 / 12.0));
}

TEST_CASE("a failure costs what comes until the next generation, and the steps that are done again") {
  Run run;
  run.joins(1);
  run.now += 10000;
  run.reports(1, at(Doing::kTraining, 0, 120, {.training = 10}));
  run.fails(1);
  run.now += 500;
  run.happens(1, Stopped{});
  REQUIRE(run.state.phase == Phase::kRunning);
  CHECK(run.spent() == Goodput{.training = 10, .down = 0.5, .best_step = 120});
  run.now += 2000;
  run.reports(1, at(Doing::kTraining, 100, 110, {.loading = 1, .training = 1}));
  CHECK(
      run.spent() ==
      Goodput{.training = 10, .redone = 1, .loading = 1, .down = 0.5, .steps_redone = 10, .best_step = 120});
  run.now += 3000;
  run.reports(1, at(Doing::kTraining, 100, 140, {.loading = 1, .training = 4}));
  CHECK(
      run.spent() ==
      Goodput{.training = 12, .redone = 2, .loading = 1, .down = 0.5, .steps_redone = 20, .best_step = 140});
  CHECK(run.life() ==
        "5000 loading, 15000 training, 15000 down, 15500 loading, 17500 redone, 20500 training");
  // One that dies before it is where the first had been, and one that goes further: each step counts each
  // time.
  run.fails(1);
  run.happens(1, Stopped{});
  run.reports(1, at(Doing::kTraining, 100, 105, {}));
  run.fails(1);
  run.happens(1, Stopped{});
  run.now += 1000;  // the back-off
  run.happens(0, Tick{});
  run.reports(1, at(Doing::kTraining, 100, 400, {}));
  CHECK(run.spent().steps_redone == 20 + 5 + 40);
  CHECK(run.spent().best_step == 400);
}

TEST_CASE("the wait for nodes, the last call and a back-off are told apart") {
  Run run;
  run.min_nodes = 2, run.max_nodes = 3;
  run.joins(1);
  run.now += 3000;
  run.joins(2);
  run.now += 5000;  // the last call
  run.happens(0, Tick{});
  REQUIRE(run.state.phase == Phase::kRunning);
  CHECK(run.spent() == Goodput{.rendezvous = 5, .waiting = 3});
  for (int times = 0; times < 2; ++times) {
    run.fails(1);
    run.happens(1, Stopped{});
    run.happens(2, Stopped{});
  }
  REQUIRE(run.state.deadlines.restart == run.now + 1000);
  run.now += 1000;
  run.happens(0, Tick{});
  CHECK(run.spent() == Goodput{.rendezvous = 5, .waiting = 3, .down = 1});
  run.joins(3);
  run.now += 250;
  for (int node : {1, 2}) run.happens(node, Stopped{});
  CHECK(run.spent() == Goodput{.rendezvous = 5.25, .waiting = 3, .down = 1});
  CHECK(run.life() ==
        "5000 waiting, 8000 rendezvous, 13000 loading, 13000 down, 13000 loading, 13000 down, 14000 loading, "
        "14000 rendezvous, 14250 loading");
}

TEST_CASE("the time of a program that reports nothing is its workers', and ends with the run") {
  Run run;
  run.command = {"train.py"};
  run.joins(1);
  run.now += 4000;
  run.happens(1, Finished{});
  REQUIRE(run.state.result != nullptr);
  CHECK(run.state.result->goodput == Goodput{.training = 4});
  CHECK(run.life() == "5000 training, 9000 over");
  run.now += 60000;
  CHECK(run.spent() == Goodput{.training = 4});
}

TEST_CASE("a coordinator that takes a run over goes on with the time that its members know") {
  Run run;
  Join join = run.join_of(1);
  join.node_count = join.world_size = join.workers = 1;
  join.group_rank = 0;
  join.age = 2000;
  join.goodput = {.training = 10, .down = -1, .steps_redone = 3, .best_step = 120};
  step(run.state, {.from = 1, .generation = 4, .body = join}, run.now);
  run.now += 1000;
  CHECK(run.spent().loading == 0);  // its workers were at work before
  CHECK(run.spent().training == 13);
  run.reports(1, at(Doing::kTraining, 100, 130, {.training = 3}));
  CHECK(run.spent() == Goodput{.training = 11, .redone = 2, .steps_redone = 23, .best_step = 130});
}

TEST_CASE("reports of another rank, of an older generation, or of times that cannot be change nothing else") {
  Run run;
  run.min_nodes = run.max_nodes = 2;
  run.joins(1);
  run.joins(2);
  run.now += 1000;
  run.reports(2, at(Doing::kSaving, 0, 9, {.saving = 1}));
  CHECK(run.spent() == Goodput{.loading = 1});
  constexpr double kHuge = std::numeric_limits<double>::max(),
                   kNan = std::numeric_limits<double>::quiet_NaN();
  run.reports(1, at(Doing::kTraining, 0, 5, {.loading = kNan, .training = 6, .evaluating = -1, .saving = 2}));
  CHECK(run.spent().training == 0.75);
  CHECK(run.spent().total() == 1);
  run.reports(1, at(Doing::kTraining, 0, 5, {.loading = kHuge, .training = kHuge}));
  CHECK(run.spent().total() == doctest::Approx(1));
  run.fails(1);
  for (int node : {1, 2}) run.happens(node, Stopped{});
  REQUIRE(run.state.generation == 2);
  const Heartbeat late{.pids = {}, .progress = at(Doing::kSaving, 0, 7, {})};
  step(run.state, {.from = 1, .generation = 1, .body = late}, run.now);
  CHECK_FALSE(run.state.current.time.report.has_value());
}

}  // namespace dtrun::rendezvous::goodput_test
