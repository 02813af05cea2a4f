#include "rendezvous/server/run_status.h"

#include <doctest/doctest.h>

namespace dtrun::rendezvous {
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
    step(state,
         {.from = from, .generation = 1, .body = Heartbeat{.pids = {7}, .progress = progress, .spares = 2}},
         10);
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
  CHECK(training.members(1).spares() == 2);
  CHECK(beats(4, {.step = 9, .total_steps = 100}).progress().step() == 9);
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

}  // namespace
}  // namespace dtrun::rendezvous
