#include "worker/trainer/local_replicas.h"

#include "tests/worker/trainer/async_device.h"
#include "tests/worker/trainer/jobs.h"
#include "worker/base/stop_point.h"
#include "worker/core/local_replicas.h"
#include "worker/model/program.h"
#include "worker/trainer/gradient_step.h"

namespace dtrun::worker::local_replicas_test {
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

struct Shape {
  int world, lanes;
};

TEST_CASE("local replicas have one result whoever computes them, in turns or as groups, and it learned") {
  const Job job;
  run_job(local_config(job, "1x1"), 1);
  const std::string model = job.model("1x1");
  const auto wanted = losses(job.metrics("1x1"));
  CHECK(wanted.size() == 7 + 3 + 1);  // lines of metrics at syncs, evaluations after 9, 15 and 19, the end
  for (const Shape shape : {Shape{1, 2}, {2, 1}, {3, 2}, {4, 1}, {6, 1}, {8, 1}}) {
    const std::string output = std::to_string(shape.world) + "x" + std::to_string(shape.lanes);
    CAPTURE(output);
    run_job(local_config(job, output), shape.world, shape.lanes);
    CHECK(job.model(output) == model);
    CHECK(losses(job.metrics(output)) == wanted);
  }
  run_job(local_config(job, "two", 2), 1);
  CHECK(job.model("two") != model);
}

// As a GPU, whose memory is not the host's: where ranks die one by one, too.
std::unique_ptr<Device> late_device(int rank) { return std::make_unique<AsyncDevice>(rank + 1); }

TEST_CASE(
    "on a device with memory of its own local replicas have the host's bytes, and so from a checkpoint") {
  const Job job;
  run_job(local_config(job, "host"), 1);
  for (const Shape shape : {Shape{1, 2}, {2, 1}, {6, 1}}) {
    const std::string output = "device" + std::to_string(shape.world);
    CAPTURE(output);
    const auto run = [&](int steps) {
      const JobConfig config = local_config(job, output);
      run_as_threads(shape.world, [&](ProcessGroup& group) {
        TestLink link(steps);
        const RankInGeneration place{group.rank(), group.size(), group.rank(), 1};
        run_at(place, config, group, shape.lanes, link, late_device(group.rank()));
      });
    };
    run(2);
    CHECK(!fs::exists(job.directory.path() / output / "model.safetensors"));
    run(-1);
    CHECK(contains(job.metrics(output), R"("from":"checkpoint")"));
    CHECK(job.model(output) == job.model("host"));
  }
}

TEST_CASE("a run of local replicas goes on from its checkpoint with another number of workers") {
  const Job job;
  run_job(local_config(job, "whole"), 2);
  const JobConfig config = local_config(job, "parts");
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
    "DiLoCo is what its paper says: the replicas' mean, and the outer step towards it, from where all go "
    "on") {
  const Job job;
  JobConfig config = job.config("diloco");
  config.train.local_replicas = 2;
  config.train.sync_every = 4;
  config.train.outer_learning_rate = 0.7, config.train.outer_momentum = 0.5;
  config.train.momentum = 0;
  config.train.max_steps = 6;
  run_job(config, 1);

  ByHand hand(config);
  std::vector<float> base = hand.parameters, momentum(base.size());
  std::vector<float> replicas[] = {base, base};
  for (std::int64_t step = 0; step < 6; ++step) {
    for (const int which : {0, 1}) hand.step(step, which, replicas[which]);
    if (step != 3 && step != 5) continue;
    for (std::size_t i = 0; i < base.size(); ++i) {
      const float gradient = base[i] - (replicas[0][i] + replicas[1][i]) / 2;
      momentum[i] = 0.5f * momentum[i] + gradient;
      base[i] -= 0.7f * (gradient + 0.5f * momentum[i]);
    }
    replicas[0] = replicas[1] = base;
  }
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

struct Death {
  StopPoint point;
  int times;
  std::int64_t step;  // of the sync from which all go on
};

// Of `world` ranks the last one dies, and the others go on without a checkpoint, `more` new ones behind them.
// Returns their first metrics.
std::string lose_a_worker(const Job& job, const JobConfig& config, const Death& death, int world,
                          int more = 0, bool late = false) {
  int worlds[] = {world, world - 1 + more};
  const auto device = [&](int rank) { return late ? late_device(rank) : make_cpu_device(); };
  fs::remove_all(config.output_dir);
  fs::remove_all(job.directory.path() / "store1"), fs::remove_all(job.directory.path() / "store2");
  const auto alone = [&](int rank, int generation) {
    DirectoryStore store(job.directory.path() / ("store" + std::to_string(generation)));
    const int size = worlds[generation - 1];
    const auto group = connect(rank, size, store, milliseconds(20000));
    TestLink link;
    const RankInGeneration place{rank, size, rank, generation};
    return run_at(place, config, *group, 1, link, device(rank)) == Outcome::kCompleted ? 0 : 1;
  };
  std::vector<pid_t> pids;
  for (int rank = 0; rank < world - 1; ++rank)
    pids.push_back(fork_child(
        [&, rank] { return live_through_two_generations(job, config, rank, worlds, device(rank)); }));
  const pid_t lost = fork_child([&] {
    deadly = death.point, times_left = death.times;
    stop_point_hook = die_there;
    return alone(world - 1, 1);
  });
  const auto killed = wait_for_exit(lost, milliseconds(60000));
  REQUIRE(killed.has_value());
  CHECK(WIFSIGNALED(*killed));
  for (int rank = world - 1; rank < world - 1 + more; ++rank)
    pids.push_back(fork_child([&, rank] { return alone(rank, 2); }));
  for (const pid_t pid : pids) {
    const auto status = wait_for_exit(pid, milliseconds(60000));
    REQUIRE(status.has_value());
    REQUIRE(WIFEXITED(*status));
    CHECK(WEXITSTATUS(*status) == 0);
  }
  const std::string metrics = read_text(fs::path(config.output_dir) / "metrics.jsonl");
  const std::size_t again = metrics.rfind(R"({"event":"start","step":)");
  REQUIRE(again != std::string::npos);
  return metrics.substr(again, metrics.find('\n', again) - again);
}

std::int64_t step_of(const std::string& start) {
  return std::stoll(start.substr(std::string(R"({"event":"start","step":)").size()));
}

// The undisturbed run, and the config of one that is disturbed and writes no checkpoint on the way.
JobConfig disturbed(const Job& job, JobConfig config) {
  config.output_dir = (job.directory.path() / "whole").string();
  config.train.logging_steps = 5;  // a line is of several syncs
  fs::remove_all(config.output_dir);
  run_job(config, 1);
  config.output_dir = (job.directory.path() / "lost").string();
  config.train.save_steps = 0;
  return config;
}

void check_lost(const Job& job, const JobConfig& config, const Death& death, int world, int more,
                bool late = false, const char* from = R"("from":"workers")") {
  CAPTURE(static_cast<int>(death.point));
  CAPTURE(more);
  const std::string start = lose_a_worker(job, config, death, world, more, late);
  CHECK(step_of(start) == death.step);
  CHECK(contains(start, from));
  CHECK(job.model("lost") == job.model("whole"));
  CHECK(losses(job.metrics("lost")) == losses(job.metrics("whole")));
}

// Two ranks make each of two replicas' steps, with two leaves each.
TEST_CASE("all go back to the last sync when a replica's group loses a rank, with no other copy of it") {
  const Job job;
  const JobConfig config = disturbed(job, local_config(job, "", 2));
  for (const int more : {0, 1}) {
    check_lost(job, config, {StopPoint::kMicrobatch, 2 * 6 + 4, 6}, 4, more);
    check_lost(job, config, {StopPoint::kExchanged, 8, 6}, 4, more);
  }
  check_lost(job, config, {StopPoint::kMicrobatch, 2, 0}, 4, 1);  // before the first one
  check_lost(job, config, {StopPoint::kMicrobatch, 2 * 6 + 4, 6}, 4, 1, true);
}

// Rank 2 has two of the four replicas, with two leaves in each of the three steps up to a sync.
TEST_CASE(
    "where a lost worker was alone with its replicas, all go back to the last sync that all have whole") {
  const Job job;
  JobConfig config = local_config(job, "");
  config.recovery.in_memory_checkpoint_steps = 3;
  config = disturbed(job, config);
  for (const int more : {0, 1}) {
    check_lost(job, config, {StopPoint::kMicrobatch, 2 * 12 + 5, 6}, 3, more);
    check_lost(job, config, {StopPoint::kMicrobatch, 2 * 12 + 5, 6}, 3, more, true);
  }
  // In the middle of the third sync, and before the others have its state of step 6.
  const auto buckets = static_cast<int>(
      make_program(ModelConfig{.type = ModelType::kConvnet}, {.shape = {1, 28, 28}, .classes = 10})
          .buckets.size());
  check_lost(job, config, {StopPoint::kBucketSent, 3 * 7 * buckets, 6}, 3, 1);
  check_lost(job, config, {StopPoint::kUpdated, 2, 3}, 3, 0);
  // At a sync of plain SGD all that a replica has is there.
  config = local_config(job, "");
  config.train.optim = OptimizerType::kSgd, config.train.momentum = 0, config.train.learning_rate = 0.05;
  check_lost(job, disturbed(job, config), {StopPoint::kMicrobatch, 2 * 12 + 5, 6}, 3, 0);
}

TEST_CASE(
    "without a copy of what a lost worker held, and without a checkpoint, all begin again as if nothing had "
    "been") {
  const Job job;
  const JobConfig config = disturbed(job, local_config(job, ""));
  check_lost(job, config, {StopPoint::kMicrobatch, 2 * 12 + 5, 0}, 3, 1, false, R"("from":"initial_values")");
}

}  // namespace
}  // namespace dtrun::worker::local_replicas_test
