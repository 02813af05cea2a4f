#include "worker/memory/need.h"

#include <algorithm>
#include <utility>

#include "proto/core/text.h"
#include "worker/base/error.h"
#include "worker/config/check_together.h"
#include "worker/core/tree.h"
#include "worker/device/cpu/footprint.h"
#include "worker/optim/optimizer.h"
#include "worker/reduction/accumulator.h"
#include "worker/schedule/schedule.h"

namespace dtrun::worker {
namespace {

// A worker with a model of a few kilobytes: code and libraries that were touched, heaps and stacks of its
// threads. A lane was measured at 2 MB with AVX-512, and at up to 10 MB with AVX2.
constexpr std::uint64_t kProcess = 22'000'000, kLane = 8'000'000;
constexpr std::uint64_t kFloat = sizeof(float);

std::int64_t leaves_of_step(const TrainingJob& job) {
  const TrainConfig& train = job.config.train;
  const std::int64_t batch =
      std::min<std::int64_t>(train.global_batch_size, std::max<std::int64_t>(job.data.train, 1));
  return (batch + train.micro_batch_size - 1) / train.micro_batch_size;
}

// Of a sum over so many leaves: the total's, if there are several ranks, and partial sums of a rank in the
// middle of the tree, which has more blocks than the first.
std::uint64_t vectors_of_sum(std::int64_t leaves, int world_size, std::int64_t lanes) {
  return (world_size > 1 ? 1 : 0) +
         most_partial_sums(leaves_of_rank(leaves, world_size / 2, world_size), lanes);
}

// Local replicas: those of a worker with the most of them.
std::uint64_t own_replicas(const TrainingJob& job) {
  const TrainConfig& train = job.config.train;
  if (!train.has_local_replicas()) return 0;
  return static_cast<std::uint64_t>((train.local_replicas + job.spread.world_size - 1) /
                                    job.spread.world_size);
}

// The sum of a step's gradients, and that of the replicas' parameters.
std::uint64_t gradient_vectors(const TrainingJob& job) {
  const TrainConfig& train = job.config.train;
  const int world = job.spread.world_size, replicas = train.local_replicas;
  const std::int64_t leaves = leaves_of_step(job);
  // In lock step the gradients of all leaves are there at once.
  if (!train.has_local_replicas())
    return vectors_of_sum(leaves, world, train.in_lock_step() ? leaves : job.spread.lanes);
  return vectors_of_sum((leaves + replicas - 1) / replicas, (world + replicas - 1) / replicas,
                        job.spread.lanes) +
         vectors_of_sum(replicas, world, 1);
}

std::uint64_t lane_bytes(const JobConfig& config, const Program& program, bool forward_only = false) {
  const TrainConfig& train = config.train;
  if (config.device != DeviceType::kCuda)
    return kFloat * cpu_lane_floats(program, train.micro_batch_size, forward_only);
  PlanFor plan = schedule::plan_for_gpu(train.bf16);
  plan.forward_only = forward_only;
  return make_plan(program, train.micro_batch_size, plan).arena * (train.bf16 ? 2 : kFloat);
}

std::uint64_t bytes_of_checkpoint(const JobConfig& config, const Program& program) {
  return kFloat * program.size * (1 + slot_names(config.train).size());
}

// Of those who share what is available: one worker, or all of a node, of which one writes checkpoints from a
// copy.
std::uint64_t need_of(const TrainingJob& job, const Available& available) {
  const bool saves = job.config.device != DeviceType::kCuda;
  const int workers = available.of_each ? 1 : job.spread.workers_of_node;
  const MemoryNeed need = memory_need(job);
  return static_cast<std::uint64_t>(workers) * (need.total() - need.data) + need.data +
         (saves ? bytes_of_checkpoint(job.config, job.program) : 0);
}

// The smallest world size from which on a node's part fits, of microbatches in lock step. REQUIRES: that of
// the job fits.
int least_world_size(const TrainingJob& job, const Available& available) {
  const auto fits = [&](int workers) {
    TrainingJob fewer = job;
    fewer.spread.world_size = workers;
    return need_of(fewer, available) <= available.bytes;
  };
  // Workers beyond the microbatches change nothing.
  const auto leaves = static_cast<int>(leaves_of_step(job));
  const int fewest = available.of_each ? 1 : job.spread.workers_of_node;
  int least = std::min(job.spread.world_size, std::max(leaves, fewest));
  for (int fewer = fewest; fewer < least;) {
    const int between = fewer + (least - fewer) / 2;
    fits(between) ? least = between : fewer = between + 1;
  }
  return least;
}

// Where microbatches are in lock step: as many nodes as share those of a step.
std::string way_out(const TrainingJob& job, const Available& available) {
  TrainingJob most = job;
  most.spread.world_size = std::max(most.spread.world_size, static_cast<int>(leaves_of_step(job)));
  const int of_node = job.spread.workers_of_node;
  if (job.config.train.in_lock_step() && need_of(most, available) <= available.bytes)
    return "it fits with --nnodes " +
           std::to_string((least_world_size(most, available) + of_node - 1) / of_node);
  return "a smaller train.micro_batch_size, fewer --lanes or --nproc_per_node, or a smaller model need less";
}

std::string in_words(const MemoryNeed& need, bool several) {
  std::vector<std::string> parts;
  for (const auto& [name, bytes] :
       {std::pair{"parameters ", need.parameters}, std::pair{"optimizer ", need.optimizer},
        std::pair{"gradients ", need.gradients}, std::pair{"activations ", need.activations},
        std::pair{several ? "data of all " : "data ", need.data}, std::pair{"copies ", need.copies}})
    if (bytes > 0) parts.push_back(name + in_gibibytes(bytes));
  return join(parts, ", ");
}

}  // namespace

TrainingJob training_job(const JobConfig& config, const DatasetFacts& data, const Spread& spread,
                         std::shared_ptr<const Teacher> teacher) {
  TrainingJob job{
      .config = config, .program = make_program(config, data.spec), .data = data, .spread = spread};
  job.program.teacher = std::move(teacher);
  return job;
}

MemoryNeed memory_need(const TrainingJob& job) {
  const auto& [config, program, data, spread] = job;
  const std::uint64_t vector = kFloat * program.size, replicas = own_replicas(job);
  const std::uint64_t slots = optimizer_slot_names(config.train).size();
  // In lock step each microbatch has a lane of its own, beside those of evaluations.
  const std::int64_t own = (leaves_of_step(job) + spread.world_size - 1) / spread.world_size;
  const auto lanes = static_cast<std::uint64_t>(spread.lanes + (config.train.in_lock_step() ? own : 0));
  MemoryNeed need;
  need.parameters = vector * (1 + replicas);
  need.optimizer =
      vector * (replicas == 0 ? slots : outer_slot_names(config.train).size() + replicas * slots);
  need.gradients = vector * gradient_vectors(job);
  const bool gpu = config.device == DeviceType::kCuda;
  const std::uint64_t row =
      kFloat * (program.sample.shape.size() + static_cast<std::uint64_t>(program.sample.targets));
  // On a GPU the samples of two more microbatches are on their way.
  const auto rows = static_cast<std::uint64_t>(config.train.micro_batch_size) * (gpu ? 3 : 1);
  need.activations = lanes * (lane_bytes(config, program) + rows * row);
  if (program.teacher) {
    need.parameters += kFloat * program.teacher->program.size;
    need.activations += lanes * lane_bytes(config, program.teacher->program, true);
  }
  if (gpu) return need;
  need.data = data.bytes;
  need.copies = copies_bytes(job);
  need.process = kProcess + lanes * kLane;
  return need;
}

std::uint64_t copies_bytes(const TrainingJob& job) {
  const TrainConfig& train = job.config.train;
  const std::uint64_t own = own_replicas(job);
  if (job.config.recovery.in_memory_checkpoint_steps > 0)
    return 2 * bytes_of_checkpoint(job.config, job.program);
  if (own == 0) return 0;
  return 2 * kFloat * job.program.size *
         (1 + outer_slot_names(train).size() + own * optimizer_slot_names(train).size());
}

Result<std::uint64_t> checkpoint_bytes(const JobConfig& config, const DatasetFacts& data) try {
  return bytes_of_checkpoint(config, make_program(config, data.spec));
} catch (const WorkerError& error) {
  return Status(error.exit_code(), error.what());
}

Status check_fit(const JobConfig& config, const DatasetFacts& data) try {
  const Program program = make_program(config, data.spec);
  if (config.data.type == DataType::kCsv) return Status();  // a table's rows are known only after reading it
  std::string refusal = too_few_samples(config.train, data.train);
  if (refusal.empty()) refusal = too_few_values(program, config.train, data.train);
  return refusal.empty() ? Status() : Status(kExitConfig, refusal);
} catch (const WorkerError& error) {
  return Status(error.exit_code(), error.what());
}

Status check_host_memory(const TrainingJob& job, const Available& available) {
  const std::uint64_t bytes = copies_bytes(job);
  const int workers = job.spread.workers_of_node;
  if (bytes * static_cast<std::uint64_t>(workers) <= available.bytes) return Status();
  const bool asked_for = job.config.recovery.in_memory_checkpoint_steps > 0;
  return Status(kExitConfig,
                std::string("not enough memory: ") +
                    (asked_for ? "/recovery/in_memory_checkpoint_steps" : "/train/local_replicas") +
                    " keeps " + in_gibibytes(bytes) + " in the host's memory for each of " +
                    std::to_string(workers) + " workers, and this machine can give " +
                    in_gibibytes(available.bytes) + " (" + available.by +
                    "); leave it out, or start fewer workers");
}

Status check_memory(const TrainingJob& job, const Available& available) {
  const std::uint64_t need = need_of(job, available);
  if (need <= available.bytes) return Status();
  const bool several = job.spread.workers_of_node > 1 && !available.of_each;
  return Status(kExitConfig, "not enough memory: " +
                                 (several ? std::to_string(job.spread.workers_of_node) + " workers need "
                                          : std::string("the worker needs ")) +
                                 in_gibibytes(need) + ", and this machine can give " +
                                 in_gibibytes(available.bytes) + " (" + available.by + "). " +
                                 (several ? "Each has " : "It has ") + in_words(memory_need(job), several) +
                                 "; " + way_out(job, available));
}

int least_workers(const TrainingJob& job, const Available& available) {
  if (!job.config.train.in_lock_step()) return 1;
  const int least = least_world_size(job, available);
  // Fewer than a node's own need no more than these where they share its memory.
  return available.of_each || least > job.spread.workers_of_node ? least : 1;
}

}  // namespace dtrun::worker
