#include "worker/trainer/local_replicas.h"

#include "tests/worker/trainer/jobs.h"
#include "worker/base/stop_point.h"
#include "worker/core/local_replicas.h"
#include "worker/model/program.h"
#include "worker/trainer/gradient_step.h"

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

// The same syncs, at each of which half of the parameters meets, to arrive two steps later.
JobConfig streaming_config(const Job& job, const std::string& output, int replicas = 4) {
  JobConfig config = local_config(job, output, replicas);
  config.train.sync_every = 6;
  config.train.sync_fragments = 2;
  config.train.sync_delay = 2;
  return config;
}

using Configure = JobConfig (*)(const Job&, const std::string&, int);

struct Shape {
  int world, lanes;
};

void check_one_result(const Job& job, Configure configure, const std::vector<Shape>& shapes) {
  run_job(configure(job, "1x1", 4), 1);
  const std::string model = job.model("1x1");
  const auto wanted = losses(job.metrics("1x1"));
  CHECK(wanted.size() == 7 + 3 + 1);  // lines of metrics at syncs, evaluations after 9, 15 and 19, the end
  for (const Shape shape : shapes) {
    const std::string output = std::to_string(shape.world) + "x" + std::to_string(shape.lanes);
    CAPTURE(output);
    run_job(configure(job, output, 4), shape.world, shape.lanes);
    CHECK(job.model(output) == model);
    CHECK(losses(job.metrics(output)) == wanted);
  }
}

TEST_CASE("local replicas have one result whoever computes them, in turns or as groups, and it learned") {
  const Job job;
  check_one_result(job, local_config, {{1, 2}, {2, 1}, {3, 2}, {4, 1}, {6, 1}, {8, 1}});
  run_job(local_config(job, "two", 2), 1);
  CHECK(job.model("two") != job.model("1x1"));
}

TEST_CASE("so they have where fragments of them travel beside their steps") {
  const Job job;
  check_one_result(job, streaming_config, {{1, 2}, {2, 1}, {3, 2}, {6, 1}});
  run_job(local_config(job, "at_once"), 1);
  CHECK(job.model("at_once") != job.model("1x1"));
}

TEST_CASE("a run of local replicas goes on from its checkpoint with another number of workers") {
  for (const Configure configure : {local_config, streaming_config}) {
    const Job job;
    CAPTURE(configure == streaming_config);
    run_job(configure(job, "whole", 4), 2);
    JobConfig config = configure(job, "parts", 4);
    stop_run(config, 2, 2);  // asked at syncs
    CHECK(
        fs::exists(job.directory.path() / "parts/checkpoints/step-00000006"));  // the first one behind step 5
    CHECK(fs::exists(job.directory.path() / "parts/checkpoints/step-00000009"));
    // The one that was made while the run went on has all replicas' state too.
    fs::remove_all(job.directory.path() / "parts/checkpoints/step-00000009");
    stop_run(config, 3, 0);
    CHECK(contains(job.metrics("parts"), R"("from":"checkpoint")"));
    run_job(config, 5);
    CHECK(job.model("parts") == job.model("whole"));
  }
}

// Steps of one replica, as this rank alone makes them.
struct ByHand {
  explicit ByHand(const JobConfig& config)
      : data(load_datasets(config)),
        replica(config, data, 1),
        batches(kTrainSamples, 32, 4, 2, config.train.max_steps),
        parameters(replica.program.size) {
    initialize_parameters(replica.program, config.train.seed, parameters);
  }
  // SGD on the mean gradient of its part of a step.
  void step(std::int64_t number, std::int64_t which, std::vector<float>& at) {
    const StepPlan plan = part_of_replica(batches.step(number), which, 2, 4);
    const float* const sum = gradients.run(plan, at.data());
    for (std::size_t i = 0; i < at.size(); ++i)
      at[i] -= static_cast<float>(replica.config.train.learning_rate) * (sum[kStatisticsFloats + i] / sum[2]);
  }
  const Datasets data;
  Replica replica;
  const BatchSampler batches;
  StepClock clock;
  const std::unique_ptr<ProcessGroup> group = make_single_process_group();
  GradientStep gradients{replica.config.train, replica.program, *data.train, *group,
                         *replica.device,      replica.lanes,   clock};
  std::vector<float> parameters;
};

TEST_CASE(
    "streaming DiLoCo is what its paper says: a fragment's mean, the outer step, and half the way to it") {
  const Job job;
  JobConfig config = job.config("streaming");
  config.train.local_replicas = 2;
  config.train.sync_every = 4, config.train.sync_fragments = 2, config.train.sync_delay = 1;
  config.train.outer_learning_rate = 0.7, config.train.outer_momentum = 0.5;
  config.train.momentum = 0;
  config.train.max_steps = 6;
  run_job(config, 1);

  ByHand hand(config);
  std::vector<float> base = hand.parameters, momentum(base.size());
  std::vector<float> replicas[] = {base, base}, mean(base.size());
  const auto meet = [&](const VectorRange& range) {
    for (std::size_t i = range.begin; i < range.end; ++i) mean[i] = (replicas[0][i] + replicas[1][i]) / 2;
  };
  const auto outer = [&](const VectorRange& range) {
    for (std::size_t i = range.begin; i < range.end; ++i) {
      const float gradient = base[i] - mean[i];
      momentum[i] = 0.5f * momentum[i] + gradient;
      base[i] -= 0.7f * (gradient + 0.5f * momentum[i]);
    }
  };
  const VectorRange all{0, base.size()};
  for (std::int64_t step = 0; step < 6; ++step) {
    // After 2 steps the second half meets, after 4 the first one, each to arrive a step later.
    const VectorRange half = elements_of(step < 4 ? 1 : 0, 2, base.size());
    if (step == 2 || step == 4) meet(half);
    if (step == 3 || step == 5) {
      outer(half);
      for (std::vector<float>& one : replicas)
        for (std::size_t i = half.begin; i < half.end; ++i) one[i] = (one[i] + base[i]) / 2;
    }
    for (const int which : {0, 1}) hand.step(step, which, replicas[which]);
  }
  meet(all);
  outer(all);
  const std::vector<float> model = load_parameters(config.output_dir, hand.replica.program);
  double difference = 0, way = 0;
  for (std::size_t i = 0; i < base.size(); ++i) {
    difference = std::max(difference, std::abs(static_cast<double>(model[i]) - base[i]));
    way = std::max(way, std::abs(static_cast<double>(model[i]) - hand.parameters[i]));
  }
  CHECK(way > 0.01);
  CHECK(difference < 1e-6);
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
  const auto prepared = [&](Configure configure) {
    JobConfig config = configure(job, "whole", 4);
    config.train.logging_steps = 5;  // a line is of several syncs
    fs::remove_all(config.output_dir);
    run_job(config, 1);
    config.output_dir = configure(job, "lost", 4).output_dir;
    config.train.save_steps = 0;
    config.recovery.in_memory_checkpoint_steps = 3;
    return config;
  };
  const auto buckets = static_cast<int>(
      make_program(ModelConfig{.type = ModelType::kConvnet}, {.shape = {1, 28, 28}, .classes = 10})
          .buckets.size());
  // Rank 2 has two of the four replicas, with two leaves in each of the three steps up to a sync.
  struct Death {
    StopPoint point;
    int times;
    std::int64_t step;
  };
  const auto check = [&](const JobConfig& config, const Death& death) {
    CAPTURE(death.step);
    fs::remove_all(config.output_dir);
    const std::int64_t step = lose_a_worker(job, config, death.point, death.times);
    CHECK((step == death.step || step == death.step - 3));  // its last state may not have reached the others
    CHECK(job.model("lost") == job.model("whole"));
    CHECK(losses(job.metrics("lost")) == losses(job.metrics("whole")));
  };
  JobConfig config = prepared(local_config);
  check(config, {StopPoint::kMicrobatch, 2 * 12 + 5, 6});
  check(config, {StopPoint::kBucketSent, 3 * 7 * buckets, 6});
  check(config, {StopPoint::kUpdated, 2, 3});
  config = prepared(streaming_config);
  check(config, {StopPoint::kHandedIn, 2, 6});
  check(config, {StopPoint::kMicrobatch, 2 * 12 + 5, 6});  // what it handed in did not arrive yet
  check(config, {StopPoint::kArrived, 2, 6});
}

}  // namespace
}  // namespace dtrun::worker
