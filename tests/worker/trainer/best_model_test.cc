// The best model and the early end: the same for any number of workers, over stops, losses and resumptions.
#include "worker/checkpoint/best_model.h"

#include <functional>

#include "tests/worker/trainer/jobs.h"
#include "worker/base/stop_point.h"
#include "worker/checkpoint/layout.h"

namespace dtrun::worker::best_model_test {
namespace {

// The loss falls from evaluation to evaluation. If greater is better, so, the first one stays the best.
JobConfig first_is_best(const Job& job, const std::string& output) {
  JobConfig config = job.config(output);
  config.train.eval_steps = 5;
  config.train.save_steps = 5;
  config.train.load_best_model_at_end = true;
  config.train.greater_is_better = true;
  return config;
}

// The best one is in the middle of the run.
JobConfig middle_is_best(const Job& job, const std::string& output) {
  JobConfig config = job.config(output);
  config.train.eval_steps = 2;
  config.train.save_steps = 4;
  config.train.learning_rate = 0.2;
  config.train.load_best_model_at_end = true;
  config.train.metric_for_best_model = BestMetric::kAccuracy;
  return config;
}

std::vector<std::int64_t> checkpoints(const JobConfig& config) {
  std::vector<std::int64_t> steps;
  for (const auto& [step, path] : list_checkpoints(config.output_dir)) steps.push_back(step);
  return steps;
}

// The model of a plain run of so many steps.
std::string model_of_step(const Job& job, JobConfig config, std::int64_t step) {
  config.output_dir = job.config("plain" + std::to_string(step)).output_dir;
  config.train.load_best_model_at_end = false;
  config.train.early_stopping_patience = 0;
  config.train.max_steps = step;
  run_job(config, 1);
  return job.model("plain" + std::to_string(step));
}

std::int64_t best_step(const Job& job, const std::string& output) {
  const std::string metrics = job.metrics(output), key = "\"best_step\":";
  const std::size_t at = metrics.rfind(key);
  REQUIRE(at != std::string::npos);
  return std::stoll(metrics.substr(at + key.size()));
}

TEST_CASE("the final model is the best one, which no limit removes, for any number of workers") {
  const Job job;
  for (const int world : {1, 3}) {
    const std::string output = std::to_string(world);
    CAPTURE(world);
    JobConfig config = first_is_best(job, output);
    config.train.save_total_limit = 1;
    run_job(config, world);
    CHECK(job.model(output) == model_of_step(job, config, 5));
    CHECK(checkpoints(config) == std::vector<std::int64_t>{5, 20});
    CHECK(best_step(job, output) == 5);
    // Started again it ends at once, with the same model.
    fs::remove(fs::path(config.output_dir) / "model.safetensors");
    CHECK(run_job(config, 1) == 20);
    CHECK(job.model(output) == model_of_step(job, config, 5));
  }
  JobConfig config = first_is_best(job, "limited");
  config.train.save_total_limit = 2;
  run_job(config, 1);
  CHECK(checkpoints(config) == std::vector<std::int64_t>{5, 20});
}

TEST_CASE("the completion is that of the best model") {
  const Job job;
  TestLink link;
  const JobConfig config = first_is_best(job, "out");
  run_rank(config, *make_single_process_group(), 1, link);
  CHECK(link.completion_->step == 20);
  const std::string loss = losses(job.metrics("out")).at(5)[1];  // five lines of training precede it
  CHECK(contains(job.metrics("out"), "\"event\":\"eval\",\"step\":5," + loss));
  CHECK(std::stod(loss.substr(loss.find(':') + 1)) == link.completion_->loss);
  CHECK(contains(job.metrics("out"),
                 "\"params_sha256\":\"" + link.completion_->params_sha256 + "\",\"best_step\":5"));
}

TEST_CASE("so many evaluations without improvement end the run well, and it stays ended") {
  const Job job;
  JobConfig config = first_is_best(job, "out");
  config.train.load_best_model_at_end = false;
  config.train.early_stopping_patience = 2;
  run_job(config, 2);
  CHECK(job.model("out") == model_of_step(job, config, 15));
  CHECK(best_step(job, "out") == 5);
  CHECK(run_job(config, 1) == 15);
  CHECK(job.model("out") == model_of_step(job, config, 15));
  // With more patience it goes on where it was, and counts on.
  config.train.early_stopping_patience = 3;
  CHECK(run_job(config, 1) == 15);
  CHECK(job.model("out") == model_of_step(job, config, 20));
}

TEST_CASE("evaluations and checkpoints can come with the epochs, or not before the end") {
  const Job job;
  JobConfig config = job.config("epochs");
  config.train.num_train_epochs = 3;
  config.train.eval_strategy = config.train.save_strategy = IntervalStrategy::kEpoch;
  run_job(config, 2);
  CHECK(checkpoints(config) == std::vector<std::int64_t>{10, 20, 30});
  int evaluations = 0;
  for (const auto& line : losses(job.metrics("epochs"))) evaluations += !line[2].empty();
  CHECK(evaluations == 3);
  config.output_dir = job.config("end").output_dir;
  config.train.eval_strategy = config.train.save_strategy = IntervalStrategy::kNo;
  run_job(config, 1);
  CHECK(checkpoints(config) == std::vector<std::int64_t>{30});
  CHECK(losses(job.metrics("end")).size() == 32);  // 30 steps, one evaluation, the end
  CHECK(job.model("end") == job.model("epochs"));
}

TEST_CASE("a run that is stopped anywhere finds the same best model and ends at the same step") {
  const Job job;
  JobConfig whole = middle_is_best(job, "whole");
  whole.train.early_stopping_patience = 4;
  run_job(whole, 1);
  const std::int64_t best = best_step(job, "whole");
  const std::int64_t last = checkpoints(whole).back();
  REQUIRE(best > 2);
  REQUIRE(last > best);
  REQUIRE(last < 20);  // early
  CHECK(job.model("whole") == model_of_step(job, whole, best));
  // Rank 1 is asked once a step, and once for each of its 9 leaves of an evaluation.
  for (int act_at = 1; act_at < 60; act_at += 7) {
    CAPTURE(act_at);
    const std::string output = "stopped" + std::to_string(act_at);
    JobConfig config = whole;
    config.output_dir = job.config(output).output_dir;
    stop_run(config, 2, act_at);
    run_job(config, 1 + act_at % 3);
    CHECK(job.model(output) == job.model("whole"));
    CHECK(losses(job.metrics(output)) == losses(job.metrics("whole")));
  }
}

// Each rank as the only one of a node that has the directory of that name.
void run_nodes(const Job& job, const std::vector<std::string>& outputs, int stop_at, Outcome outcome,
               std::int64_t generation = 1) {
  run_as_threads(static_cast<int>(outputs.size()), [&](ProcessGroup& group) {
    TestLink link(stop_at);
    const RankInGeneration place{group.rank(), group.size(), 0, generation};
    REQUIRE(run_at(place, first_is_best(job, outputs[group.rank()]), group, 1, link) == outcome);
  });
}

TEST_CASE("the best model comes from whichever node's disk has it") {
  const Job job;
  run_job(first_is_best(job, "whole"), 1);
  run_nodes(job, {"first", "second"}, 40, Outcome::kStopped);
  fs::remove_all(job.directory.path() / "first");
  run_nodes(job, {"empty", "second"}, -1, Outcome::kCompleted, 2);
  CHECK_FALSE(fs::exists(job.directory.path() / "empty/checkpoints/step-00000005"));
  CHECK(job.model("empty") == job.model("whole"));
}

TEST_CASE("a run that goes on from another one's checkpoint finds that one's best model") {
  const Job job;
  JobConfig first = first_is_best(job, "run");
  first.train.save_total_limit = 0;
  run_job(first, 1);
  JobConfig again = first_is_best(job, "again");
  again.train.resume_from_checkpoint = ResumeFrom(first.output_dir + "/checkpoints/step-00000010");
  CHECK(run_job(again, 2) == 10);
  CHECK(job.model("again") == job.model("run"));
}

TEST_CASE("with another metric the best model is looked for anew") {
  const Job job;
  JobConfig config = first_is_best(job, "run");
  config.train.max_steps = 15;
  config.train.early_stopping_patience = 2;
  run_job(config, 1);
  config.train.max_steps = 20;
  config.train.greater_is_better = false;
  CHECK(run_job(config, 1) == 15);  // and not the end: evaluations without improvement are counted anew, too
  CHECK(best_step(job, "run") == 20);
}

// A rank of generation 1, which loses rank 0, and of generation 2 as the rank before. Exit code 0 if it went
// on with its own state.
int outlive_rank_0(const Job& job, const JobConfig& config, int rank) {
  const Datasets data = load_datasets(config);
  Replica replica(config, data, 1);
  for (const int generation : {1, 2}) {
    DirectoryStore store(job.directory.path() / ("store" + std::to_string(generation)));
    const auto group = connect(rank - (generation - 1), 4 - generation, store, milliseconds(20000));
    TestLink link;
    try {
      const RankInGeneration place{group->rank(), group->size(), group->rank(), generation};
      const Outcome outcome = train(replica, place, *group, link);
      return generation == 2 && outcome == Outcome::kCompleted && link.began_at_.value_or(0) > 0 ? 0 : 1;
    } catch (const WorkerError& error) {
      if (generation == 2 || error.exit_code() != kExitWorkerPeerLost) return 2;
    }
  }
  return 3;
}

// A run of three ranks of which rank 0 is lost ends as one that loses nobody. `how`: called in rank 0 before
// it runs; it is killed when it asks for the `act_at`-th time (TestLink), or by what `how` has prepared.
void check_outlived(const std::function<int(const Job&)>& how) {
  const Job job;
  JobConfig whole = middle_is_best(job, "whole");
  whole.train.early_stopping_patience = 4;
  whole.train.save_steps = 2000;  // none but the best is saved
  run_job(whole, 1);
  JobConfig config = whole;
  config.output_dir = job.config("survived").output_dir;
  std::vector<pid_t> pids;
  for (const int rank : {1, 2})
    pids.push_back(fork_child([&, rank] { return outlive_rank_0(job, config, rank); }));
  const pid_t lost = fork_child([&] {
    DirectoryStore store(job.directory.path() / "store1");
    const auto group = connect(0, 3, store, milliseconds(20000));
    TestLink link(how(job), true);
    run_rank(config, *group, 1, link);
    return 0;
  });
  const auto killed = wait_for_exit(lost, milliseconds(60000));
  REQUIRE(killed.has_value());
  REQUIRE(WIFSIGNALED(*killed));
  for (const pid_t pid : pids) {
    const auto status = wait_for_exit(pid, milliseconds(60000));
    REQUIRE(status.has_value());
    REQUIRE(WIFEXITED(*status));
    CHECK(WEXITSTATUS(*status) == 0);
  }
  CHECK(job.model("survived") == job.model("whole"));
  CHECK(losses(job.metrics("survived")) == losses(job.metrics("whole")));
  CHECK(best_step(job, "survived") == best_step(job, "whole"));
}

TEST_CASE("the best model outlives the rank that wrote it, in the memory of the others and on the disk") {
  // In the middle of an evaluation, between the steps behind one, and far behind the best.
  for (const int act_at : {9, 14, 31, 52}) {
    CAPTURE(act_at);
    check_outlived([&](const Job&) { return act_at; });
  }
}

TEST_CASE("a best model that the rank which writes was lost with is saved by the next one") {
  static int saves_left;  // up to that of the best
  check_outlived([](const Job& job) {
    const std::string metrics = job.metrics("whole"), save = R"("event":"save")";
    saves_left = 0;
    for (std::size_t at = 0; (at = metrics.find(save, at)) != std::string::npos; ++at) ++saves_left;
    stop_point_hook = [](StopPoint point) {
      if (point == StopPoint::kSaving && --saves_left == 0) raise(SIGKILL);
    };
    return -1;
  });
}

}  // namespace
}  // namespace dtrun::worker::best_model_test
