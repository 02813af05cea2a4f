#include "worker/memory/need.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <numeric>
#include <utility>

#include "proto/core/text.h"
#include "worker/base/error.h"
#include "worker/config/check_together.h"
#include "worker/core/local_replicas.h"
#include "worker/core/sampler.h"
#include "worker/core/tree.h"
#include "worker/device/cpu/footprint.h"
#include "worker/optim/optimizer.h"
#include "worker/reduction/accumulator.h"
#include "worker/reduction/exchange_plan.h"
#include "worker/schedule/schedule.h"

namespace dtrun::worker {
namespace {

// A worker with a model of a few kilobytes: code and libraries that were touched, heaps and stacks of its
// threads. A lane was measured at 2 MB with AVX-512, and at up to 10 MB with AVX2.
constexpr std::uint64_t kProcess = 22'000'000, kLane = 8'000'000;
constexpr std::uint64_t kFloat = sizeof(float);

// Floats that peers send to this rank in a step, and sums of them that are no total.
std::uint64_t inbox(const Program& program, std::int64_t leaves, int rank, const Spread& spread) {
  const int world = spread.world_size, of_host = spread.workers_of_node;
  const ExchangePlan plan =
      plan_exchange(leaves, rank, world, world % of_host == 0 ? of_host : 0, program.buckets, kDirectBytes);
  std::uint64_t floats = 0;
  for (const BucketPlan& bucket : plan.buckets)
    for (const VectorRange& slot : bucket.slots) floats += slot.size();
  return floats;
}

std::int64_t leaves_of_step(const TrainConfig& train, std::int64_t samples) {
  const std::int64_t batch =
      std::min<std::int64_t>(train.global_batch_size, std::max<std::int64_t>(samples, 1));
  return (batch + train.micro_batch_size - 1) / train.micro_batch_size;
}

// Of a sum over so many leaves: the total's vector, if there are several ranks, and the most partial sums of
// any rank: ranks in the middle of the tree have more blocks than the first.
std::uint64_t sum_bytes(const TrainConfig& train, const Program& program, std::int64_t leaves,
                        const Spread& spread) {
  std::uint64_t most = 0;
  const int looked_at = std::min(spread.world_size, 64);  // enough to include all kinds of ranks
  for (int i = 0; i < looked_at; ++i) {
    const int rank = static_cast<int>(std::int64_t{spread.world_size} * i / looked_at);
    std::uint64_t floats =
        program.size * most_partial_sums(leaves_of_rank(leaves, rank, spread.world_size), spread.lanes);
    if (train.reduction == ReductionType::kTree) floats += inbox(program, leaves, rank, spread);
    most = std::max(most, floats);
  }
  return kFloat * ((spread.world_size > 1 ? program.size : 0) + most);
}

// Local replicas: those of a worker with the most of them.
std::int64_t own_replicas(const TrainConfig& train, const Spread& spread) {
  if (!train.has_local_replicas()) return 0;
  return (train.local_replicas + spread.world_size - 1) / spread.world_size;
}

// The sum of the replicas' parameters.
std::uint64_t sync_bytes(const TrainConfig& train, const Program& program, Spread spread) {
  spread.lanes = 1;
  return sum_bytes(train, program, train.local_replicas, spread);
}

// Of local replicas where they are on GPUs: the outer state, what meets, and all of theirs for a checkpoint.
std::uint64_t host_bytes_of_replicas(const TrainConfig& train, const Program& program, const Spread& spread) {
  if (!train.has_local_replicas()) return 0;
  const std::uint64_t outer = 1 + outer_slot_names(train).size(), all = 1 + slot_names(train).size();
  return kFloat * program.size * (outer + all) + sync_bytes(train, program, spread);
}

// The sum of a step's gradients, and that of the replicas' parameters.
std::uint64_t gradient_bytes(const TrainConfig& train, const Program& program, std::int64_t samples,
                             const Spread& spread) {
  const std::int64_t leaves = leaves_of_step(train, samples);
  if (train.in_lock_step()) {  // holds the gradients of all its leaves at once
    Spread at_once = spread;
    at_once.lanes = static_cast<int>(leaves);
    return sum_bytes(train, program, leaves, at_once);
  }
  if (!train.has_local_replicas()) return sum_bytes(train, program, leaves, spread);
  const int replicas = train.local_replicas, group = (spread.world_size + replicas - 1) / replicas;
  Spread of_group = spread;
  of_group.world_size = group, of_group.workers_of_node = std::min(spread.workers_of_node, group);
  return sum_bytes(train, program, (leaves + replicas - 1) / replicas, of_group) +
         sync_bytes(train, program, spread);
}

Program program_of(const JobConfig& config, const DatasetFacts& data,
                   std::shared_ptr<const Teacher> teacher) {
  Program program = make_program(config, data.spec);
  program.teacher = std::move(teacher);
  return program;
}

std::uint64_t lane_bytes(const TrainConfig& train, bool gpu, const Program& program,
                         bool forward_only = false) {
  if (!gpu) return kFloat * cpu_lane_floats(program, train.micro_batch_size, forward_only);
  PlanFor plan = schedule::plan_for_gpu(train.bf16);
  plan.forward_only = forward_only;
  return make_plan(program, train.micro_batch_size, plan).arena * (train.bf16 ? 2 : kFloat);
}

// Of those who share what is available: the worker that saves, or all of a node.
std::uint64_t need_of(const JobConfig& config, const Program& program, const DatasetFacts& data,
                      const Spread& spread, const Available& available) {
  const auto need = [&](bool saves) { return memory_need(config, program, data, spread, saves).total(); };
  const int others = available.of_each ? 0 : spread.workers_of_node - 1;
  return need(true) + (others > 0 ? others * need(false) : 0);
}

// The largest of `values` that fits. REQUIRES: `values` ascend, and smaller values than one that fits fit
// too.
template <typename T>
std::optional<T> largest_that_fits(const std::vector<T>& values, const std::function<bool(T)>& fits) {
  const auto end = std::partition_point(values.begin(), values.end(), fits);
  return end == values.begin() ? std::nullopt : std::optional(*std::prev(end));
}

std::vector<int> below(int value) {
  std::vector<int> values(static_cast<std::size_t>(value - 1));
  std::iota(values.begin(), values.end(), 1);
  return values;
}

// The smallest world size from which on a node's part fits, of microbatches in lock step. REQUIRES: that of
// `spread` fits.
int least_world_size(const JobConfig& config, const Program& program, const DatasetFacts& data,
                     const Spread& spread, const Available& available) {
  const auto fits = [&](int workers) {
    Spread fewer = spread;
    fewer.world_size = workers;
    return need_of(config, program, data, fewer, available) <= available.bytes;
  };
  // Workers beyond the microbatches change nothing.
  const auto leaves = static_cast<int>(leaves_of_step(config.train, data.train));
  const int fewest = available.of_each ? 1 : spread.workers_of_node;
  int least = std::min(spread.world_size, std::max(leaves, fewest));
  for (int fewer = fewest; fewer < least;) {
    const int between = fewer + (least - fewer) / 2;
    fits(between) ? least = between : fewer = between + 1;
  }
  return least;
}

// Finds changes of the config that would make the job fit.
class WaysOut {
 public:
  WaysOut(const JobConfig& config, const DatasetFacts& data, const Spread& spread, const Available& available,
          std::shared_ptr<const Teacher> teacher)
      : config_(config), data_(data), spread_(spread), available_(available), teacher_(std::move(teacher)) {}

  std::string run() {
    std::vector<std::string> ways;
    const auto say = [&](const char* what, const std::optional<int>& value) {
      if (value) ways.push_back(what + std::to_string(*value));
    };
    say("train.micro_batch_size=", largest_that_fits<int>(smaller_microbatches(), [&](int rows) {
          JobConfig other = config_;
          other.train.micro_batch_size = rows;
          return need(other, spread_) <= available_.bytes;
        }));
    JobConfig recomputes = config_;
    recomputes.model.gradient_checkpointing = true;
    const bool can_recompute =
        config_.model.type == ModelType::kGpt2 && !config_.model.gradient_checkpointing;
    if (can_recompute && need(recomputes, spread_) <= available_.bytes)
      ways.push_back("model.gradient_checkpointing=true");
    say("--lanes ", largest_that_fits<int>(below(spread_.lanes), [&](int lanes) {
          return need(config_, with_lanes(spread_, lanes)) <= available_.bytes;
        }));
    say(("--lanes " + std::to_string(spread_.lanes) + " --nproc_per_node ").c_str(),
        largest_that_fits<int>(below(spread_.workers_of_node), [&](int workers) {
          return need(config_, with_workers(spread_, workers)) <= available_.bytes;
        }));
    if (const auto nodes = more_nodes()) ways.push_back("--nnodes " + std::to_string(*nodes));
    JobConfig without_copies = config_;
    without_copies.recovery.in_memory_checkpoint_steps = 0;
    if (config_.recovery.in_memory_checkpoint_steps > 0 && need(without_copies, spread_) <= available_.bytes)
      ways.push_back("recovery.in_memory_checkpoint_steps=0");
    if (!ways.empty()) return "it fits with " + join(ways, " or ");
    return all_together(can_recompute);
  }

 private:
  std::uint64_t need(const JobConfig& config, const Spread& spread) const {
    return need_of(config, program_of(config, data_, teacher_), data_, spread, available_);
  }
  static Spread with_lanes(Spread spread, int lanes) {
    spread.lanes = lanes;
    return spread;
  }
  static Spread with_workers(Spread spread, int workers) {
    spread.world_size = std::max(1, spread.world_size / spread.workers_of_node * workers);
    spread.workers_of_node = workers;
    return spread;
  }
  std::vector<int> smaller_microbatches() const {
    std::vector<int> sizes;
    for (int rows = 1; rows < config_.train.micro_batch_size; ++rows)
      if (config_.train.global_batch_size % rows == 0) sizes.push_back(rows);
    return sizes;
  }
  // Where microbatches are in lock step: as many nodes as share those of a step.
  std::optional<int> more_nodes() const {
    Spread most = spread_;
    most.world_size = std::max(most.world_size, static_cast<int>(leaves_of_step(config_.train, data_.train)));
    if (!config_.train.in_lock_step() || need(config_, most) > available_.bytes) return std::nullopt;
    const int least =
        least_world_size(config_, program_of(config_, data_, teacher_), data_, most, available_);
    return (least + spread_.workers_of_node - 1) / spread_.workers_of_node;
  }
  std::string all_together(bool can_recompute) const {
    JobConfig least = config_;
    std::vector<std::string> changes;
    if (config_.train.micro_batch_size > 1) changes.push_back("train.micro_batch_size=1");
    if (can_recompute) changes.push_back("model.gradient_checkpointing=true");
    if (spread_.lanes > 1) changes.push_back("--lanes 1");
    if (spread_.workers_of_node > 1) changes.push_back("--nproc_per_node 1");
    least.train.micro_batch_size = 1;
    least.model.gradient_checkpointing = least.model.gradient_checkpointing || can_recompute;
    const std::uint64_t bytes = need(least, with_lanes(with_workers(spread_, 1), 1));
    const std::string with = changes.empty() ? "" : " with " + join(changes, " ");
    if (bytes <= available_.bytes) return "it fits" + with;
    return "even" + (with.empty() ? " as small as it can be" : with) + " it needs " + in_gigabytes(bytes) +
           ": choose a smaller model, or a machine with more memory";
  }

  const JobConfig& config_;
  const DatasetFacts& data_;
  const Spread spread_;
  const Available& available_;
  const std::shared_ptr<const Teacher> teacher_;
};

}  // namespace

std::uint64_t MemoryNeed::total() const {
  std::uint64_t sum = 0;
  for (const auto& [name, bytes] : parts_of(*this)) sum += bytes;
  return sum;
}

std::vector<std::pair<const char*, std::uint64_t>> parts_of(const MemoryNeed& need) {
  return {{"parameters", need.parameters},
          {"optimizer", need.optimizer},
          {"gradients", need.gradients},
          {"activations", need.activations},
          {"batches", need.batches},
          {"evaluation", need.evaluation},
          {"data", need.data},
          {"checkpoint", need.checkpoint},
          {"in_memory_checkpoint", need.in_memory_checkpoint},
          {"process", need.process}};
}

MemoryNeed memory_need(const JobConfig& config, const Program& program, const DatasetFacts& data,
                       const Spread& spread, bool saves) {
  // In lock step each microbatch has a lane of its own, beside those of evaluations.
  const std::int64_t own =
      (leaves_of_step(config.train, data.train) + spread.world_size - 1) / spread.world_size;
  const std::int64_t in_step = config.train.in_lock_step() ? own : 0;
  const auto lanes = static_cast<std::uint64_t>(spread.lanes + in_step);
  const auto rows = static_cast<std::uint64_t>(config.train.micro_batch_size);
  const std::uint64_t vector = kFloat * program.size;
  MemoryNeed need;
  const auto replicas = static_cast<std::uint64_t>(own_replicas(config.train, spread));
  const std::uint64_t slots = optimizer_slot_names(config.train).size();
  need.parameters = vector * (1 + replicas) +
                    (program.teacher ? kFloat * program.teacher->program.size : 0);
  need.optimizer =
      vector * (replicas == 0 ? slots : outer_slot_names(config.train).size() + replicas * slots);
  need.gradients = gradient_bytes(config.train, program, data.train, spread);
  const bool gpu = config.device == DeviceType::kCuda;
  need.activations = lanes * lane_bytes(config.train, gpu, program);
  if (program.teacher)
    need.activations += lanes * lane_bytes(config.train, gpu, program.teacher->program, true);
  need.batches = lanes * rows * kFloat *
                 (program.sample.shape.size() + static_cast<std::uint64_t>(program.sample.targets));
  if (gpu) {
    need.batches *= 3;  // two more are on their way
    return need;        // the rest lies in the host's memory, or goes there if the GPU has no room
  }
  constexpr std::uint64_t kSumsOfLeaf = 3 * kFloat + sizeof(Block) + sizeof(float*);
  need.evaluation = need.batches + (static_cast<std::uint64_t>(data.test) + rows - 1) / rows * kSumsOfLeaf;
  need.data = data.bytes;
  if (data.train <= EpochOrder::kLargestShuffle)
    need.data += static_cast<std::uint64_t>(data.train) * sizeof(std::uint32_t);
  // A worker that saves keeps the state that it started from; the others free theirs before the first
  // gradient.
  // Local replicas are made from it, and so is the memory of their sum before it is freed.
  const std::uint64_t copy = vector * (1 + slot_names(config.train).size());
  need.checkpoint = saves || replicas > 0 ? copy : copy - std::min(copy, need.gradients);
  need.in_memory_checkpoint = in_memory_checkpoint_bytes(config, program, spread);
  need.process = kProcess + lanes * kLane;
  return need;
}

std::uint64_t in_memory_checkpoint_bytes(const JobConfig& config, const Program& program,
                                         const Spread& spread) {
  const bool of_all = config.recovery.in_memory_checkpoint_steps > 0;
  const auto own = static_cast<std::uint64_t>(own_replicas(config.train, spread));
  if (!of_all && own == 0) return 0;
  const std::uint64_t slots =
      of_all ? slot_names(config.train).size()
             : outer_slot_names(config.train).size() + own * optimizer_slot_names(config.train).size();
  return 2 * kFloat * program.size * (1 + slots);
}

Result<std::uint64_t> checkpoint_bytes(const JobConfig& config, const DatasetFacts& data) try {
  return kFloat * make_program(config, data.spec).size * (1 + slot_names(config.train).size());
} catch (const WorkerError& error) {
  return Status(error.exit_code(), error.what());
}

std::string in_gigabytes(std::uint64_t bytes) {
  const double value = static_cast<double>(bytes);
  if (value >= 99.5e9) return decimals(value / 1e9, 0) + " GB";
  if (value >= 0.95e9) return decimals(value / 1e9, 1) + " GB";
  return decimals(std::max(1.0, value / 1e6), 0) + " MB";
}

std::string in_words(const MemoryNeed& need) {
  auto parts = parts_of(need);
  std::ranges::stable_sort(parts, std::ranges::greater(), [](const auto& part) { return part.second; });
  std::string text = in_gigabytes(need.total());
  const char* between = " (";
  for (const auto& [name, bytes] : parts) {
    if (bytes < need.total() / 50) break;
    text += between + std::string(name) + " " + in_gigabytes(bytes);
    between = ", ";
  }
  return text + ")";
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

Status check_host_memory(const JobConfig& config, const DatasetFacts& data, const Spread& spread,
                         const Available& available) {
  const Program program = make_program(config, data.spec);
  const std::uint64_t copies = in_memory_checkpoint_bytes(config, program, spread),
                      replicas = host_bytes_of_replicas(config.train, program, spread);
  const std::uint64_t need = (copies + replicas) * static_cast<std::uint64_t>(spread.workers_of_node);
  if (need <= available.bytes) return Status();
  std::vector<std::string> keys;
  if (replicas > 0) keys.emplace_back("/train/local_replicas");
  const bool asked_for = config.recovery.in_memory_checkpoint_steps > 0;
  if (asked_for) keys.emplace_back("/recovery/in_memory_checkpoint_steps");
  return Status(kExitConfig,
                "not enough memory: " + join(keys, " and ") + (keys.size() == 1 ? " keeps " : " keep ") +
                    in_gigabytes(copies + replicas) + " in the host's memory for each of " +
                    std::to_string(spread.workers_of_node) + " workers, and this machine can give " +
                    in_gigabytes(available.bytes) + " (" + available.by + "); leave " +
                    (asked_for ? keys.back() : "it") + " out, or start fewer workers");
}

Status check_memory(const JobConfig& config, const DatasetFacts& data, const Spread& spread,
                    const Available& available, std::shared_ptr<const Teacher> teacher) {
  const Program program = program_of(config, data, teacher);
  const std::uint64_t need = need_of(config, program, data, spread, available);
  if (need <= available.bytes) return Status();
  const bool several = spread.workers_of_node > 1 && !available.of_each;
  return Status(kExitConfig, "not enough memory: " +
                                 (several ? std::to_string(spread.workers_of_node) + " workers need "
                                          : std::string("the worker needs ")) +
                                 in_gigabytes(need) + ", and this machine can give " +
                                 in_gigabytes(available.bytes) + " (" + available.by + "). " +
                                 (several ? "The one that saves needs " : "It is ") +
                                 in_words(memory_need(config, program, data, spread, true)) + "; " +
                                 WaysOut(config, data, spread, available, std::move(teacher)).run());
}

int least_workers(const JobConfig& config, const DatasetFacts& data, const Spread& spread,
                  const Available& available, std::shared_ptr<const Teacher> teacher) {
  if (!config.train.in_lock_step()) return 1;
  const int least =
      least_world_size(config, program_of(config, data, std::move(teacher)), data, spread, available);
  // Fewer than a node's own need no more than these where they share its memory.
  return available.of_each || least > spread.workers_of_node ? least : 1;
}

}  // namespace dtrun::worker
