#include "worker/trainer/local_replicas.h"

#include "tests/worker/trainer/jobs.h"
#include "worker/trainer/steps.h"

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
  stop_run(config, 3, 0);
  CHECK(contains(job.metrics("parts"), R"("from":"checkpoint")"));
  run_job(config, 5);
  CHECK(job.model("parts") == job.model("whole"));
}

}  // namespace
}  // namespace dtrun::worker
