#include "worker/trainer/local_replicas.h"

#include "tests/worker/trainer/jobs.h"
#include "worker/base/stop_point.h"
#include "worker/model/program.h"

namespace dtrun::worker {
namespace {

// 19 steps: six syncs, of which the last has one step before it. The step of 4 leaves lies in between, and so
// does the beginning of the second epoch.
JobConfig local_config(const Job& job, const std::string& output, int replicas = 4) {
  JobConfig config = job.config(output);
  config.train.local_replicas = replicas;
  config.train.sync_every = 3;
  config.train.outer_learning_rate = 0.8;
  config.train.outer_momentum = 0.5;
  config.train.optim = OptimizerType::kAdamW;
  config.train.learning_rate = 0.002;
  config.train.max_grad_norm = 0.5;
  config.train.max_steps = 19;
  return config;
}

TEST_CASE("local replicas have one result whoever computes them, in turns or as groups, and it learned") {
  const Job job;
  run_job(local_config(job, "1x1"), 1);
  const std::string model = job.model("1x1");
  const auto wanted = losses(job.metrics("1x1"));
  CHECK(wanted.size() == 7 + 3 + 1);  // lines of metrics at syncs, evaluations after 9, 15 and 19, the end
  CHECK(job.model("1x1") != [&] {
    run_job(local_config(job, "two", 2), 1);
    return job.model("two");
  }());
  struct Shape {
    int world, lanes;
  };
  for (const Shape shape : {Shape{1, 2}, {2, 1}, {3, 2}, {4, 1}, {6, 1}, {8, 1}}) {
    const std::string output = std::to_string(shape.world) + "x" + std::to_string(shape.lanes);
    CAPTURE(output);
    run_job(local_config(job, output), shape.world, shape.lanes);
    CHECK(job.model(output) == model);
    CHECK(losses(job.metrics(output)) == wanted);
  }
}

TEST_CASE("a run of local replicas goes on from its checkpoint with another number of workers") {
  const Job job;
  run_job(local_config(job, "whole"), 2);
  JobConfig config = local_config(job, "parts");
  stop_run(config, 2, 2);                                                       // asked at syncs
  CHECK(fs::exists(job.directory.path() / "parts/checkpoints/step-00000006"));  // the first one behind step 5
  CHECK(fs::exists(job.directory.path() / "parts/checkpoints/step-00000009"));
  // The one that was made while the run went on has all replicas' state too.
  fs::remove_all(job.directory.path() / "parts/checkpoints/step-00000009");
  stop_run(config, 3, 0);
  CHECK(contains(job.metrics("parts"), R"("from":"checkpoint")"));
  run_job(config, 5);
  CHECK(job.model("parts") == job.model("whole"));
}

// The death of this process, when it passes the point for so many times.
StopPoint deadly = StopPoint::kHello;
int times_left = 0;
void die_there(StopPoint point) {
  if (point == deadly && --times_left == 0) raise(SIGKILL);
}

// Rank 2 of three dies; the others go on without a checkpoint. Returns the step at which they did.
std::int64_t lose_a_worker(const Job& job, const JobConfig& config, StopPoint point, int times) {
  int worlds[] = {3, 2};
  fs::remove_all(job.directory.path() / "store1"), fs::remove_all(job.directory.path() / "store2");
  std::vector<pid_t> pids;
  for (const int rank : {0, 1})
    pids.push_back(fork_child([&, rank] { return live_through_two_generations(job, config, rank, worlds); }));
  const pid_t lost = fork_child([&] {
    deadly = point, times_left = times;
    stop_point_hook = die_there;
    DirectoryStore store(job.directory.path() / "store1");
    const auto group = connect(2, 3, store, milliseconds(20000));
    TestLink link;
    run_rank(config, *group, 1, link);
    return 0;
  });
  const auto killed = wait_for_exit(lost, milliseconds(60000));
  REQUIRE(killed.has_value());
  CHECK(WIFSIGNALED(*killed));
  for (const pid_t pid : pids) {
    const auto status = wait_for_exit(pid, milliseconds(60000));
    REQUIRE(status.has_value());
    REQUIRE(WIFEXITED(*status));
    CHECK(WEXITSTATUS(*status) == 0);
  }
  const std::string metrics = read_text(fs::path(config.output_dir) / "metrics.jsonl");
  const std::size_t again = metrics.rfind(R"({"event":"start","step":)");
  REQUIRE(again != std::string::npos);
  CHECK(
      contains(metrics.substr(again, metrics.find('\n', again) - again), R"("from":"in_memory_checkpoint")"));
  return std::stoll(metrics.substr(again + std::string(R"({"event":"start","step":)").size()));
}

TEST_CASE(
    "a worker lost between two syncs, in one or while its state is sent costs at most what is behind one") {
  const Job job;
  JobConfig config = local_config(job, "whole");
  config.train.logging_steps = 5;  // a line is of several syncs
  run_job(config, 1);
  config.output_dir = local_config(job, "lost").output_dir;
  config.train.save_steps = 0;
  config.recovery.in_memory_checkpoint_steps = 3;
  const auto buckets = static_cast<int>(
      make_program(ModelConfig{.type = ModelType::kConvnet}, {.shape = {1, 28, 28}, .classes = 10})
          .buckets.size());
  // Rank 2 has two of the four replicas, with two leaves in each of the three steps up to a sync.
  struct Death {
    StopPoint point;
    int times;
    std::int64_t step;
  };
  for (const Death death : {Death{StopPoint::kMicrobatch, 2 * 12 + 5, 6},
                            {StopPoint::kBucketSent, 3 * 7 * buckets, 6},
                            {StopPoint::kUpdated, 2, 3}}) {
    CAPTURE(death.step);
    fs::remove_all(config.output_dir);
    const std::int64_t step = lose_a_worker(job, config, death.point, death.times);
    CHECK((step == death.step || step == death.step - 3));  // its last state may not have reached the others
    CHECK(job.model("lost") == job.model("whole"));
    CHECK(losses(job.metrics("lost")) == losses(job.metrics("whole")));
  }
}

}  // namespace
}  // namespace dtrun::worker
