#include "rendezvous/server/run_status.h"

#include <doctest/doctest.h>

namespace dtrun::rendezvous::run_status_test {
namespace {

Join one_of_two(const char* id) {
  Join join;
  join.member_id = join.host = id;
  join.address = "10.0.0.1";
  join.min_nodes = join.max_nodes = 2;
  return join;
}

TEST_CASE("a run shows the progress of its furthest node, and none before the trainer has loaded") {
  State state;
  step(state, {.from = 3, .body = one_of_two("a")}, 0);
  step(state, {.from = 4, .body = one_of_two("b")}, 0);
  const auto beats = [&](ConnectionId from, const Progress& progress) {
    step(state, {.from = from, .generation = 1, .body = Heartbeat{.pids = {7}, .progress = progress}}, 10);
    return status_of(state, 20);
  };
  const v1::RunStatus loading = beats(3, {.phase = Progress::Phase::kLoading});
  REQUIRE(loading.members_size() == 2);
  CHECK_FALSE(loading.has_progress());
  CHECK_FALSE(loading.members(0).has_progress());
  CHECK(beats(3, {.step = 8, .total_steps = 100}).progress().step() == 8);
  const v1::RunStatus training = beats(4, {.step = 6, .total_steps = 100});
  CHECK(training.progress().step() == 8);
  CHECK(training.members(0).progress().step() == 8);
  CHECK(training.members(1).progress().step() == 6);
  CHECK(beats(4, {.step = 9, .total_steps = 100}).progress().step() == 9);
}

TEST_CASE("of steps' durations and checkpoints rank 0 speaks, and a lost node is counted") {
  State state;
  step(state, {.from = 3, .body = one_of_two("a")}, 0);
  step(state, {.from = 4, .body = one_of_two("b")}, 0);
  StepDurations durations;
  durations.add(0.003);
  const auto beats = [&](ConnectionId from, const std::optional<StepDurations>& told, std::int64_t saved) {
    const Progress progress{
        .total_steps = 9, .step_durations = told, .checkpoints = Checkpoints{.written = 1, .step = saved}};
    step(state, {.from = from, .generation = 1, .body = Heartbeat{.pids = {7}, .progress = progress}}, 10);
    return status_of(state, 20);
  };
  CHECK_FALSE(beats(4, durations, 5).has_step_durations());
  const v1::RunStatus status = beats(3, durations, 8);
  CHECK(status.step_durations().counts_size() == 3);
  CHECK(status.step_durations().counts(2) == 1);
  CHECK(status.checkpoints().step() == 8);
  CHECK(status.failures().node_lost() == 0);
  step(state, {.from = 4, .body = StreamBroken{"was cut"}}, 30);
  step(state, {.body = Tick{}}, 30 + kReconnectGrace);
  CHECK(status_of(state, 400).failures().node_lost() == 1);
}

TEST_CASE("each worker of a node with a place has its rank, process and newest facts") {
  State state;
  Join join = one_of_two("a");
  join.nproc = 2;
  step(state, {.from = 3, .body = join}, 0);
  join.member_id = join.host = "b";
  step(state, {.from = 4, .body = join}, 0);
  const WorkerReport told{
      .step = 12, .times = StepTimes{.steps = 5, .math = 0.25}, .usage = WorkerUsage{.cpu = 1.5}};
  step(state, {.from = 4, .generation = 1, .body = Heartbeat{.pids = {7, 8}, .workers = {{}, told}}}, 10);
  const v1::RunStatus status = status_of(state, 20);
  REQUIRE(status.members(0).workers_size() == 2);
  CHECK_FALSE(status.members(0).workers(0).has_usage());
  REQUIRE(status.members(1).workers_size() == 2);
  const v1::WorkerStatus& worker = status.members(1).workers(1);
  CHECK(worker.rank() == 3);
  CHECK(worker.local_rank() == 1);
  CHECK(worker.pid() == 8);
  CHECK(worker.step() == 12);
  CHECK(worker.times().math() == 0.25);
  CHECK(worker.usage().cpu() == 1.5);
  CHECK_FALSE(status.members(1).workers(0).has_times());
}

TEST_CASE(
    "all members hear once of the worker that slows the run, the status shows it, and so does its end") {
  State state;
  step(state, {.from = 3, .body = one_of_two("a")}, 0);
  step(state, {.from = 4, .body = one_of_two("b")}, 0);
  int heard = 0;
  for (int second = 1; second <= 20; ++second) {
    for (int rank = 0; rank < 2; ++rank) {
      const double slow = rank == 1 ? 2 : 1;
      const StepTimes times{
          .steps = 40 * second, .math = 0.4 * slow * second, .wait_peers = 0.4 * (2 - slow) * second};
      const Heartbeat beat{.pids = {7}, .workers = {{.rank = rank, .times = times}}};
      const Event event{.from = ConnectionId(3 + rank), .generation = 1, .body = beat};
      for (const Action& action : step(state, event, 1000 * second))
        heard += std::holds_alternative<Verdict>(action.body);
    }
  }
  CHECK(heard == 2);
  REQUIRE(status_of(state, 20000).has_verdict());
  CHECK(status_of(state, 20000).members(0).workers(0).own_time_ratio() == doctest::Approx(0.667));
  CHECK(status_of(state, 20000).members(1).workers(0).own_time_ratio() == doctest::Approx(1.333));
  CHECK(state.history.columns().back().ratios == std::vector<int>{667, 1333});
  REQUIRE(state.history.life().spans().size() == 2);
  CHECK(state.history.life().spans()[0].kind->name == std::string("waiting"));
  CHECK(state.history.life().spans()[1].kind->name == std::string("loading"));
  CHECK(status_of(state, 20000).verdict().rank() == 1);
  CHECK(
      status_of(state, 20000).verdict().text() ==
      "rank 1 on b slows the run: it takes 1.3 times as long as the median of all ranks, 5.0 ms of each step "
      "more for math");
  step(state, {.from = 3, .generation = 1, .body = Finished{}}, 20000);
  step(state, {.from = 4, .generation = 1, .body = Finished{}}, 20000);
  REQUIRE(state.result != nullptr);
  REQUIRE(state.result->verdict.has_value());
  CHECK(state.result->verdict->rank == 1);
  CHECK(status_of(state, 20000).has_verdict());
}

}  // namespace
}  // namespace dtrun::rendezvous::run_status_test
