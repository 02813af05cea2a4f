// The trainer on simulated GPUs, several ranks in one process: each with streams of its own that the host
// does not wait for without need, next to the threads that exchange gradients and write checkpoints.
#include "worker/trainer/trainer.h"

#include <sys/mman.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include "tests/cuda_on_cpu/counters.h"
#include "tests/cuda_on_cpu/faults.h"
#include "tests/cuda_on_cpu/machine.h"
#include "tests/cuda_on_cpu/settings.h"
#include "tests/worker/trainer/jobs.h"
#include "worker/device/cuda_device.h"
#include "worker/memory/need.h"
#include "worker/trainer/gradient_step.h"

namespace dtrun::worker::trainer_test {
namespace {

JobConfig small_job(const Job& job, const std::string& output) {
  JobConfig config = job.config(output);
  config.model.type = ModelType::kMlp;
  config.model.hidden_sizes = {24, 8};
  config.model.activation = ActivationType::kGelu;
  config.model.dropout = 0.1;
  config.train.optim = OptimizerType::kAdamW;
  config.train.learning_rate = 0.002;
  config.train.max_grad_norm = 0.5;
  config.train.max_steps = 6;
  config.train.save_steps = 2;
  config.train.bf16 = true;
  return config;
}

void train_on_gpus(const JobConfig& config, int world) {
  cuda_on_cpu::machine.gpus = {0, 1, 2, 3};
  run_as_threads(world, [&](ProcessGroup& group) {
    const Datasets data = load_datasets(config);
    Replica replica(config, data, 1, make_cuda_device(group.rank()));
    TestLink link;
    const RankInGeneration place{group.rank(), group.size(), group.rank(), 1};
    REQUIRE(train(replica, place, group, link) == Outcome::kCompleted);
    REQUIRE(replica.device->memory()->peak > 0);
  });
}

std::string bytes_of_model(const JobConfig& config) {
  return read_text(fs::path(config.output_dir) / "model.safetensors");
}

TEST_CASE("any number of ranks trains to the same bytes, in any order that streams allow") {
  const Job job;
  const JobConfig alone = small_job(job, "alone");
  train_on_gpus(alone, 1);
  for (const int world : {2, 3}) {
    CAPTURE(world);
    cuda_on_cpu::settings = {.streams = cuda_on_cpu::Policy::kRandom, .seed = static_cast<unsigned>(world)};
    const JobConfig config = small_job(job, std::to_string(world));
    train_on_gpus(config, world);
    CHECK(bytes_of_model(config) == bytes_of_model(alone));
  }
  cuda_on_cpu::settings = {};
}

double loss_of(const std::array<std::string, 3>& line) {
  return line[1].empty() ? 0 : std::stod(line[1].substr(line[1].find(':') + 1));
}

double last_loss(const Job& job, const std::string& output) {
  double last = 0;
  for (const auto& line : losses(job.metrics(output)))
    if (const double loss = loss_of(line); loss != 0) last = loss;
  return last;
}

TEST_CASE("what it computes is what the CPU computes, but for rounding") {
  const Job job;
  JobConfig gpu = small_job(job, "gpu"), cpu = small_job(job, "cpu");
  gpu.train.bf16 = cpu.train.bf16 = false;
  gpu.train.logging_steps = cpu.train.logging_steps = 1;
  train_on_gpus(gpu, 2);
  run_job(cpu, 1);
  const auto there = losses(job.metrics("gpu")), here = losses(job.metrics("cpu"));
  REQUIRE(there.size() == here.size());
  REQUIRE(there.size() >= 6);
  for (std::size_t i = 0; i < there.size(); ++i)
    CHECK(loss_of(there[i]) == doctest::Approx(loss_of(here[i])).epsilon(1e-5));
}

TEST_CASE("with a teacher and rounded weights any number of ranks trains to the same bytes, near the CPU's") {
  const Job job;
  const JobConfig teacher = small_job(job, "teacher");
  train_on_gpus(teacher, 1);
  const auto config = [&](const std::string& output) {
    JobConfig taught = small_job(job, output);
    taught.train.bf16 = false, taught.train.logging_steps = 1;
    taught.train.quantize_aware = Quantization::kQ4_0;
    taught.train.distill_from = teacher.output_dir;
    taught.train.distill_alpha = 0.9;
    return taught;
  };
  const JobConfig alone = config("alone"), together = config("together"), cpu = config("cpu");
  train_on_gpus(alone, 1);
  train_on_gpus(together, 3);
  CHECK(bytes_of_model(together) == bytes_of_model(alone));
  run_job(cpu, 1);
  const double here = last_loss(job, "cpu");
  CHECK(last_loss(job, "alone") == doctest::Approx(here).epsilon(1e-4));
  JobConfig untaught = config("untaught");
  untaught.train.distill_from.reset();
  train_on_gpus(untaught, 1);
  CHECK(last_loss(job, "untaught") != doctest::Approx(here).epsilon(3e-4));
}

// Bytes that were said to be needed of the GPU of a single worker.
double said_memory(JobConfig config) {
  config.device = DeviceType::kCuda;
  const DatasetFacts data = check_dataset(config.data).value();
  return static_cast<double>(memory_need(training_job(config, data, {})).total());
}

double used_memory(const Job& job, const std::string& output) {
  const std::string metrics = job.metrics(output), name = "\"gpu_memory_used\":";
  return std::stod(metrics.substr(metrics.rfind(name) + name.size()));
}

TEST_CASE(
    "batch norms over groups of microbatches have the same bits on any number of GPUs, and are those of one "
    "microbatch with all samples") {
  const Job job;
  const auto config = [&](const std::string& output, int micro, int group, bool bf16) {
    JobConfig norms = small_job(job, output);
    norms.model = {
        .type = ModelType::kResnet, .depths = {1, 1}, .embedding_size = 8, .stem = StemType::kImagenet};
    norms.train.micro_batch_size = micro, norms.train.batch_norm_group = group;
    norms.train.bf16 = bf16, norms.train.logging_steps = 1, norms.train.eval_steps = 0;
    return norms;
  };
  for (const bool bf16 : {false, true}) {
    CAPTURE(bf16);
    const std::string output = bf16 ? "alone in bf16" : "alone";
    const JobConfig alone = config(output, 8, 0, bf16);
    train_on_gpus(alone, 1);
    CHECK(said_memory(alone) < used_memory(job, output));
    CHECK(said_memory(alone) > 0.66 * used_memory(job, output));
    for (const int world : {2, 3}) {
      CAPTURE(world);
      cuda_on_cpu::settings = {.streams = cuda_on_cpu::Policy::kRandom, .seed = static_cast<unsigned>(world)};
      const JobConfig together = config(std::to_string(world) + (bf16 ? " in bf16" : ""), 8, 0, bf16);
      train_on_gpus(together, world);
      CHECK(bytes_of_model(together) == bytes_of_model(alone));
    }
    cuda_on_cpu::settings = {};
  }
  const JobConfig cpu = config("cpu", 8, 0, false), whole = config("whole", 32, 1, false),
                  apart = config("apart", 8, 1, false);
  run_job(cpu, 1);
  train_on_gpus(whole, 1);
  train_on_gpus(apart, 1);
  const double here = last_loss(job, "alone");
  CHECK(last_loss(job, "cpu") == doctest::Approx(here).epsilon(1e-4));
  CHECK(last_loss(job, "whole") == doctest::Approx(here).epsilon(1e-4));
  CHECK(last_loss(job, "apart") != doctest::Approx(here).epsilon(3e-4));
}

TEST_CASE("local replicas train to the same bytes on any number of GPUs, near the CPU's") {
  const Job job;
  const auto config = [&](const std::string& output) {
    JobConfig local = small_job(job, output);
    local.train.local_replicas = 2;
    local.train.sync_every = 4;
    local.train.outer_learning_rate = 0.8, local.train.outer_momentum = 0.5;
    local.train.max_steps = 10;
    return local;
  };
  const JobConfig alone = config("alone");
  train_on_gpus(alone, 1);
  for (const int world : {2, 3, 4}) {  // 3: two GPUs share a replica
    CAPTURE(world);
    cuda_on_cpu::settings = {.streams = cuda_on_cpu::Policy::kRandom, .seed = static_cast<unsigned>(world)};
    const JobConfig together = config(std::to_string(world));
    train_on_gpus(together, world);
    CHECK(bytes_of_model(together) == bytes_of_model(alone));
  }
  cuda_on_cpu::settings = {};
  JobConfig gpu = config("in fp32"), cpu = config("cpu");
  gpu.train.bf16 = cpu.train.bf16 = false;
  train_on_gpus(gpu, 1);
  run_job(cpu, 1);
  CHECK(last_loss(job, "in fp32") == doctest::Approx(last_loss(job, "cpu")).epsilon(1e-5));
  CHECK(bytes_of_model(gpu) != bytes_of_model(alone));
}

// Bytes between the GPU and pageable memory, for which the thread that trains stood.
std::uint64_t pageable_bytes_of_training(const JobConfig& config, cudaError_t host_register) {
  cuda_on_cpu::plan_faults({.host_register = host_register});
  cuda_on_cpu::reset_counters();
  std::uint64_t bytes = 0;
  run_as_threads(1, [&](ProcessGroup& group) {
    const Datasets data = load_datasets(config);
    Replica replica(config, data, 1, make_cuda_device(0));
    if (config.recovery.in_memory_checkpoint_steps > 0)
      replica.in_memory_checkpoint =
          std::make_unique<InMemoryCheckpoint>(replica, memfd_create("test", MFD_ALLOW_SEALING));
    TestLink link;
    REQUIRE(train(replica, {0, 1, 0, 1}, group, link) == Outcome::kCompleted);
    bytes = cuda_on_cpu::counters().copied_pageable[std::this_thread::get_id()];
  });
  cuda_on_cpu::plan_faults({});
  return bytes;
}

TEST_CASE("neither checkpoints nor copies in the host's memory let training wait for a slow copy") {
  const Job job;
  JobConfig config = small_job(job, "without");
  config.train.save_steps = 0;
  // The copies at a run's beginning and end.
  const std::uint64_t always = pageable_bytes_of_training(config, cudaSuccess);
  for (const cudaError_t host_register : {cudaSuccess, cudaErrorNotSupported}) {
    CAPTURE(host_register);
    config = small_job(job, "saves" + std::to_string(host_register));
    config.train.save_steps = 1;
    CHECK(pageable_bytes_of_training(config, host_register) <= always);
    config.output_dir += "-copies";
    config.recovery.in_memory_checkpoint_steps = 1;
    CHECK(pageable_bytes_of_training(config, host_register) <= always);
    CHECK(job.metrics(fs::path(config.output_dir).filename()).find(R"("event":"save")") != std::string::npos);
    CHECK(bytes_of_model(config) == read_text(job.directory.path() / "without" / "model.safetensors"));
  }
}

// Counts the microbatches that are read of it.
class CountedDataset final : public Dataset {
 public:
  explicit CountedDataset(std::unique_ptr<Dataset> data) : data_(std::move(data)) {}
  std::int64_t size() const override { return data_->size(); }
  SampleSpec spec() const override { return data_->spec(); }
  std::string values() const override { return data_->values(); }
  void fill(std::span<const std::uint32_t> samples, const SampleRows& rows) const override {
    ++filled;
    data_->fill(samples, rows);
  }
  mutable std::int64_t filled = 0;

 private:
  const std::unique_ptr<Dataset> data_;
};

// The sums of an epoch's first steps, and the microbatches that were read for each.
struct Steps {
  std::vector<std::vector<float>> sums;
  std::vector<std::int64_t> filled;
};
Steps steps_of(const JobConfig& config, bool ahead) {
  Datasets data = load_datasets(config);
  auto counted = std::make_unique<CountedDataset>(std::move(data.train));
  const CountedDataset& train = *counted;
  data.train = std::move(counted);
  Replica replica(config, data, 1, make_cuda_device(0));
  TrainState start = replica.snapshot();
  start.parameters.resize(replica.program.size);
  initialize_parameters(replica.program, config.train.seed, start.parameters);
  replica.restore(start);
  const auto alone = make_single_process_group();
  StepClock clock;
  GradientStep gradient_step(config.train, replica.program, train, *alone, *replica.device, replica.lanes,
                             clock);
  const BatchSampler batches(train.size(), config.train.global_batch_size, config.train.micro_batch_size, 1,
                             4);
  Steps steps;
  for (int step = 0; step < 4; ++step) {
    const std::int64_t before = train.filled;
    const std::optional<StepPlan> next =
        ahead && step < 3 ? std::optional(batches.step(step + 1)) : std::nullopt;
    const float* const sum = gradient_step.run(batches.step(step), replica.state.parameters.data(), next);
    steps.filled.push_back(train.filled - before);
    std::vector<float>& host = steps.sums.emplace_back(replica.program.size);
    replica.device->arithmetic().copy(*replica.stream, host.data(), sum + kStatisticsFloats, host.size());
    replica.stream->wait();
  }
  return steps;
}

TEST_CASE("a step takes the next one's first samples to the GPU while that computes, and they are the same") {
  const Job job;
  const JobConfig config = small_job(job, "ahead");
  const Steps ahead = steps_of(config, true), plain = steps_of(config, false);
  CHECK(plain.filled == std::vector<std::int64_t>{8, 8, 8, 8});
  CHECK(ahead.filled == std::vector<std::int64_t>{9, 8, 8, 7});
  CHECK(ahead.sums == plain.sums);
}

}  // namespace
}  // namespace dtrun::worker::trainer_test
