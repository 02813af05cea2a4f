// The trainer on a device that works behind the host's back gives the CPU's bytes: so nothing of it reads
// device memory, nothing takes enqueued work for done, and all that must wait for other work does.
#include "tests/worker/trainer/async_device.h"

#include <mutex>
#include <utility>

#include "tests/worker/trainer/jobs.h"
#include "worker/base/error.h"
#include "worker/trainer/evaluation.h"
#include "worker/trainer/gradient_step.h"
#include "worker/trainer/trainer.h"

namespace dtrun::worker::async_device_test {
namespace {

void run_on_async_device(const JobConfig& config, int world, int lanes) {
  run_as_threads(world, [&](ProcessGroup& group) {
    const Datasets data = load_datasets(config);
    Replica replica(config, data, lanes, std::make_unique<AsyncDevice>(group.rank() + 1));
    TestLink link;
    const RankInGeneration place{group.rank(), group.size(), group.rank(), 1};
    REQUIRE(train(replica, place, group, link) == Outcome::kCompleted);
  });
}

void check_same_bytes(const JobConfig& on_cpu, const Job& job, const std::string& output, int world,
                      int lanes, int cpu_world) {
  CAPTURE(output);
  run_job(on_cpu, cpu_world);
  JobConfig config = on_cpu;
  config.output_dir = job.config(output).output_dir;
  run_on_async_device(config, world, lanes);
  CHECK(job.model(output) == read_text(fs::path(on_cpu.output_dir) / "model.safetensors"));
  CHECK(losses(job.metrics(output)) == losses(read_text(fs::path(on_cpu.output_dir) / "metrics.jsonl")));
}

TEST_CASE("an asynchronous device trains to the CPU's bytes, for any number of workers and lanes") {
  const Job job;
  JobConfig config = job.config("cpu");
  config.train.optim = OptimizerType::kAdamW;
  config.train.learning_rate = 0.002;
  config.train.max_grad_norm = 0.5;
  config.train.max_steps = 12;
  check_same_bytes(config, job, "1x3", 1, 3, 1);
  config.output_dir = job.config("cpu2").output_dir;
  check_same_bytes(config, job, "2x2", 2, 2, 1);
  config.output_dir = job.config("cpu5").output_dir;  // by slices
  check_same_bytes(config, job, "5x1", 5, 1, 1);
}

// Loses its peers when it is asked for the n-th time whether it has, counted from 0: before some microbatch.
class Breaking final : public ProcessGroup {
 public:
  explicit Breaking(int breaks_at) : left_(breaks_at) {}
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::unique_ptr<Work> start(std::span<const OutMessage> sends,
                              std::span<const InMessage> receives) override {
    return inner_->start(sends, receives);
  }
  void check() const override {
    if (left_-- <= 0) throw WorkerError(kExitWorkerPeerLost, "broken for the test");
  }
  void abort() noexcept override { inner_->abort(); }

 private:
  const std::unique_ptr<ProcessGroup> inner_ = make_single_process_group();
  mutable std::atomic<int> left_;
};

TEST_CASE("a step that failed frees no memory on which lanes still compute") {
  const Job job;
  const JobConfig config = job.config("unused");
  const Datasets data = load_datasets(config);
  Replica replica(config, data, 3, std::make_unique<AsyncDevice>(1));
  StepClock clock;
  for (int round = 0; round < 30; ++round) {
    Breaking in_mid_step(3);
    GradientStep step(config.train, replica.program, *data.train, in_mid_step, *replica.device, replica.lanes,
                      clock);
    CHECK_THROWS_AS(step.run({0, 0, 32, 8}, replica.state.parameters.data()), WorkerError);
  }
}

TEST_CASE("a replica whose lanes still computed when its peers were lost goes on to the same bytes") {
  const Job job;
  JobConfig config = job.config("whole");
  config.train.max_steps = 4;
  config.train.eval_steps = 0;
  run_job(config, 1);
  const Datasets data = load_datasets(config);
  for (int breaks_at = 10; breaks_at < 20; ++breaks_at) {
    CAPTURE(breaks_at);
    config.output_dir = job.config("broken" + std::to_string(breaks_at)).output_dir;
    Replica replica(config, data, 3, std::make_unique<AsyncDevice>(breaks_at));
    Breaking breaking(breaks_at);
    TestLink first, second;
    CHECK_THROWS_AS(train(replica, {}, breaking, first), WorkerError);
    CHECK((replica.state.step > 0 && replica.state.step < 4));
    train(replica, {.generation = 2}, *make_single_process_group(), second);
    CHECK(job.model("broken" + std::to_string(breaks_at)) == job.model("whole"));
  }
}

TEST_CASE("a lost peer ends an evaluation in its midst, not once all is computed") {
  const Job job;
  const JobConfig config = job.config("unused");
  const Datasets data = load_datasets(config);
  Replica replica(config, data, 1);
  const Buffer parameters(replica.program.size);
  initialize_parameters(replica.program, 1, {parameters.data(), parameters.size()});
  Breaking in_its_midst(5);
  int computed = 0;
  CHECK_THROWS_AS(evaluate(*data.test, config.train.micro_batch_size, parameters.data(), in_its_midst,
                           replica.lanes, [&] { return ++computed < 0; }),
                  WorkerError);
  CHECK(computed == 5);
}

TEST_CASE("a replica's state goes to the device and back, and what was not there yet is told") {
  const Job job;
  const JobConfig config = job.config("unused");
  const Datasets data = load_datasets(config);
  Replica replica(config, data, 1, std::make_unique<AsyncDevice>(1));
  const TrainState before = replica.snapshot();
  CHECK(before.parameters.empty());
  REQUIRE(before.optimizer.size() == 1);
  CHECK(before.optimizer[0].values == std::vector<float>(replica.program.size));
  TrainState state = before;
  state.step = 7;
  state.config_json = "{}";
  state.parameters.assign(replica.program.size, 0.5f);
  state.optimizer[0].values.back() = 3;
  replica.restore(state);
  const TrainState after = replica.snapshot();
  CHECK(after.step == 7);
  CHECK(after.config_json == "{}");
  CHECK(after.parameters == state.parameters);
  CHECK(after.optimizer[0].name == "momentum_buffer");
  CHECK(after.optimizer[0].values == state.optimizer[0].values);
}

// The CPU by another name.
class OtherCpu final : public Device {
 public:
  std::string fingerprint() const override { return "another processor"; }
  Arithmetic& arithmetic() override { return cpu_->arithmetic(); }
  OpTimer& timer() override { return cpu_->timer(); }
  std::unique_ptr<Lane> make_lane(const Program& program, int capacity) override {
    return cpu_->make_lane(program, capacity);
  }

 private:
  const std::unique_ptr<Device> cpu_ = make_cpu_device();
};

// One step of three ranks, of which one may compute on another device.
std::string said_by_three(bool mixed, bool allowed, std::int64_t generation) {
  const Job job;
  JobConfig config = job.config("out");
  config.train.max_steps = 1;
  config.train.allow_mixed_devices = allowed;
  std::string said;
  std::mutex writes;
  set_log_reader([&](const std::string& text) {
    const std::lock_guard lock(writes);
    said += text + '\n';
  });
  run_as_threads(3, [&](ProcessGroup& group) {
    const Datasets data = load_datasets(config);
    const bool other = mixed && group.rank() == 2;
    Replica replica(config, data, 1, other ? std::unique_ptr<Device>(new OtherCpu) : make_cpu_device());
    TestLink link;
    const RankInGeneration place{group.rank(), group.size(), group.rank(), generation};
    try {
      REQUIRE(train(replica, place, group, link) == Outcome::kCompleted);
    } catch (const WorkerError& error) {
      const std::lock_guard lock(writes);
      said += "exit code " + std::to_string(error.exit_code()) + ": " + error.what() + '\n';
    }
  });
  set_log_reader([](const std::string&) {});
  return said;
}

constexpr char kMixed[] = "rank 2 computes on another processor, rank 0 on cpu, ";

TEST_CASE("ranks that compute on different devices do not begin a run, and all name both") {
  const std::string said = said_by_three(true, false, 1);
  std::size_t refusals = 0, at = 0;
  for (const std::string refusal = std::string("exit code 78: ") + kMixed;
       (at = said.find(refusal, at)) != std::string::npos; ++at)
    ++refusals;
  CHECK(refusals == 3);
  CHECK(contains(said, "or set train.allow_mixed_devices"));
  CHECK_FALSE(contains(said_by_three(false, false, 1), "computes on"));
}

TEST_CASE("ranks that may compute on different devices, or come to do so in a run that trains, are told of") {
  for (const auto& [allowed, generation] : {std::pair(true, 1), std::pair(false, 2)}) {
    const std::string said = said_by_three(true, allowed, generation);
    CHECK(contains(said, kMixed));
    CHECK(said.find("computes on") == said.rfind("computes on"));  // once, not by each rank
    CHECK_FALSE(contains(said, "exit code"));
  }
}

}  // namespace
}  // namespace dtrun::worker::async_device_test
