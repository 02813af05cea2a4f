#include "worker/trainer/local_replicas.h"

#include "tests/worker/trainer/async_device.h"
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

// As a GPU, whose memory is not the host's: where ranks die one by one, too.
std::unique_ptr<Device> late_device(int rank) { return std::make_unique<AsyncDevice>(rank + 1); }

TEST_CASE(
    "on a device with memory of its own local replicas have the host's bytes, and so from a checkpoint") {
  const Job job;
  for (const Configure configure : {local_config, streaming_config}) {
    CAPTURE(configure == streaming_config);
    fs::remove_all(job.directory.path() / "host");
    run_job(configure(job, "host", 4), 1);
    for (const Shape shape : {Shape{1, 2}, {2, 1}, {6, 1}}) {
      const std::string output = "device" + std::to_string(shape.world);
      CAPTURE(output);
      fs::remove_all(job.directory.path() / output);
      const auto run = [&](int steps) {
        JobConfig config = configure(job, output, 4);
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

// Where a rank that is late hands in, another one has long done so, and goes on.
thread_local bool is_late = false, has_handed_in = false;
std::atomic<int> made_meanwhile{0};
int made_when_late_one_handed_in = 0;
void hold_late_one(StopPoint point) {
  constexpr int kUpToArrival = 2 * 2 * 2;  // steps, replicas, leaves
  if (point == StopPoint::kMicrobatch && has_handed_in && !is_late) ++made_meanwhile;
  if (point != StopPoint::kHandingIn || std::exchange(has_handed_in, true) || !is_late) return;
  const auto until = std::chrono::steady_clock::now() + milliseconds(10000);
  while (made_meanwhile < kUpToArrival && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(milliseconds(1));
  made_when_late_one_handed_in = made_meanwhile;
}

TEST_CASE(
    "what meets with a delay is waited for only when it arrives: the steps up to there are made before") {
  const Job job;
  JobConfig config = streaming_config(job, "late");
  config.train.max_steps = 6, config.train.eval_steps = 0, config.train.save_steps = 0;
  stop_point_hook = hold_late_one;
  run_as_threads(2, [&](ProcessGroup& group) {
    is_late = group.rank() == 1;
    TestLink link;
    run_rank(config, group, 1, link);
  });
  stop_point_hook = nullptr;
  CHECK(made_when_late_one_handed_in == 8);
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
  std::int64_t step;  // of the sync from which all go on, or the one after
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
JobConfig disturbed(const Job& job, Configure configure, int replicas) {
  JobConfig config = configure(job, "whole", replicas);
  config.train.logging_steps = 5;  // a line is of several syncs
  fs::remove_all(config.output_dir);
  run_job(config, 1);
  config.output_dir = configure(job, "lost", replicas).output_dir;
  config.train.save_steps = 0;
  return config;
}

void check_as_undisturbed(const Job& job) {
  CHECK(job.model("lost") == job.model("whole"));
  CHECK(losses(job.metrics("lost")) == losses(job.metrics("whole")));
}

// Rank 2 has two of the four replicas, with two leaves in each of the three steps up to a sync.
TEST_CASE(
    "what nobody else holds of a lost worker's replicas is redone from a sync, and that of others not") {
  const Job job;
  const auto check = [&](const JobConfig& config, const Death& death, const char* from) {
    CAPTURE(static_cast<int>(death.point));
    const std::string start = lose_a_worker(job, config, death, 3, death.times % 2);
    // Its last state may not have reached the others.
    CHECK((step_of(start) == death.step || step_of(start) == death.step - 3));
    CHECK(contains(start, from));
    check_as_undisturbed(job);
  };
  JobConfig config = disturbed(job, local_config, 4);
  config.recovery.in_memory_checkpoint_steps = 3;
  const auto buckets = static_cast<int>(
      make_program(ModelConfig{.type = ModelType::kConvnet}, {.shape = {1, 28, 28}, .classes = 10})
          .buckets.size());
  check(config, {StopPoint::kMicrobatch, 2 * 12 + 5, 6}, R"("from":"workers")");
  check(config, {StopPoint::kBucketSent, 3 * 7 * buckets, 6}, R"("from":)");
  check(config, {StopPoint::kUpdated, 2, 3}, R"("from":)");  // before the others have its state of step 6
  config = disturbed(job, streaming_config, 4);
  config.recovery.in_memory_checkpoint_steps = 3;
  check(config, {StopPoint::kHandingIn, 2, 6}, R"("from":"workers")");
  check(config, {StopPoint::kMicrobatch, 2 * 12 + 5, 6}, R"("from":"workers")");
  check(config, {StopPoint::kArrived, 2, 6}, R"("from":"workers")");
  // At a sync of plain SGD all that a replica has is there.
  config = local_config(job, "whole", 4);
  config.train.optim = OptimizerType::kSgd, config.train.momentum = 0, config.train.learning_rate = 0.05;
  fs::remove_all(config.output_dir);
  run_job(config, 1);
  config.output_dir = local_config(job, "lost").output_dir;
  config.train.save_steps = 0;
  check(config, {StopPoint::kMicrobatch, 2 * 12 + 5, 6}, R"("from":"workers")");
}

TEST_CASE(
    "without a copy of what a lost worker held, and without a checkpoint, all begin again as if nothing had "
    "been") {
  const Job job;
  for (const Configure configure : {local_config, streaming_config}) {
    const JobConfig config = disturbed(job, configure, 4);
    const std::string start = lose_a_worker(job, config, {StopPoint::kMicrobatch, 2 * 12 + 5, 0}, 3, 1);
    CHECK(step_of(start) == 0);
    check_as_undisturbed(job);
  }
}

// Two ranks make each of two replicas' steps, with two leaves each.
TEST_CASE(
    "a replica whose group loses a rank goes on with what the group's others hold, with no other copy") {
  const Job job;
  for (const Configure configure : {local_config, streaming_config}) {
    const JobConfig config = disturbed(job, configure, 2);
    for (const Death death : {Death{StopPoint::kMicrobatch, 2 * 6 + 4, 6}, {StopPoint::kExchanged, 8, 6}}) {
      CAPTURE(configure == streaming_config);
      const std::string start = lose_a_worker(job, config, death, 4, death.times % 2);
      CHECK(step_of(start) == death.step);
      CHECK(contains(start, R"("from":"workers")"));
      check_as_undisturbed(job);
    }
  }
  // The others wait for what is not handed in, or it is there.
  const JobConfig config = disturbed(job, streaming_config, 2);
  for (const StopPoint point : {StopPoint::kHandingIn, StopPoint::kArrived}) {
    const std::string start = lose_a_worker(job, config, {point, 2, 6}, 4, 1);
    CHECK((step_of(start) == 6 && contains(start, R"("from":"workers")")));
    check_as_undisturbed(job);
  }
}

TEST_CASE("what is handed on of replicas on devices is what was on the host") {
  const Job job;
  for (const Configure configure : {local_config, streaming_config}) {
    CAPTURE(configure == streaming_config);
    // By a group's others; from a copy, by a new rank and by the others.
    JobConfig config = disturbed(job, configure, 2);
    std::string start = lose_a_worker(job, config, {StopPoint::kMicrobatch, 2 * 6 + 4, 6}, 4, 1, true);
    CHECK(step_of(start) == 6);
    CHECK(contains(start, R"("from":"workers")"));
    check_as_undisturbed(job);
    config = disturbed(job, configure, 4);
    config.recovery.in_memory_checkpoint_steps = 3;
    for (const int more : {0, 1}) {
      start = lose_a_worker(job, config, {StopPoint::kMicrobatch, 2 * 12 + 5, 6}, 3, more, true);
      CHECK(step_of(start) == 6);
      CHECK(contains(start, R"("from":"workers")"));
      check_as_undisturbed(job);
    }
  }
}

}  // namespace
}  // namespace dtrun::worker
