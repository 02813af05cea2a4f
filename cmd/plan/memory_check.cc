#include "cmd/plan/memory_check.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <vector>

#include "proto/base/memory_limit.h"
#include "worker/base/error.h"
#include "worker/checkpoint/trained_model.h"
#include "worker/data/dataset.h"
#include "worker/memory/need.h"

namespace dtrun::cmd {
namespace {

std::shared_ptr<const worker::Teacher> teacher_of(const worker::TrainConfig& train,
                                                  const worker::SampleSpec& sample) {
  if (!train.distill_from) return nullptr;
  auto teacher = std::make_shared<worker::Teacher>();
  teacher->program = worker::find_teacher(train, sample).program;
  return teacher;
}

struct Question {
  worker::JobConfig config;  // with the device that was chosen
  worker::DatasetFacts data;
  worker::Spread spread;
};

// Nothing where check_memory() is OK in any case.
std::optional<Question> question_of(const JobSpec& spec) {
  const auto* trainer = std::get_if<BuiltinTrainer>(&spec.program);
  if (trainer == nullptr) return std::nullopt;
  Result<worker::JobConfig> config = worker::parse_config(trainer->config_json, "config", {});
  if (!config.ok()) return std::nullopt;
  const worker::TrainConfig& train = config.value().train;
  // The workers of other jobs on GPUs find out before their first step whether there is room.
  if (trainer->cuda && !trainer->in_memory_checkpoints && !train.has_local_replicas() &&
      !train.in_lock_step())
    return std::nullopt;
  const Result<worker::DatasetFacts> data = worker::check_dataset(config.value().data);
  if (!data.ok()) return std::nullopt;
  // Microbatches in lock step wait until there are nodes enough: least_workers().
  const int nodes = train.in_lock_step() ? spec.nodes.max : spec.nodes.min;
  config.value().device = trainer->cuda ? worker::DeviceType::kCuda : worker::DeviceType::kCpu;
  return Question{.config = config.value(),
                  .data = data.value(),
                  .spread = {.lanes = trainer->lanes,
                             .workers_of_node = std::max(spec.nproc, spec.local_world_size),
                             .world_size = spec.nproc * nodes}};
}

// What each worker has under a limit on address space, which is its own, and of which stacks take their whole
// size.
std::optional<worker::Available> address_space_of_worker(const worker::Spread& spread) {
  constexpr int kThreads = 8;  // beside the lanes: main, signals, control socket, exchange, checkpoints
  const std::optional<std::uint64_t> limit = memory_limit();
  if (!limit) return std::nullopt;
  const std::uint64_t stacks = static_cast<std::uint64_t>(kThreads + spread.lanes) * stack_of_a_thread();
  return worker::Available{
      .bytes = *limit - std::min(*limit, stacks),
      .by = std::to_string(*limit >> 20) + " MiB for each process, ulimit -v, less the stacks of its threads",
      .of_each = true};
}

std::vector<worker::Available> limits_of(const JobSpec& spec, const Question& question,
                                         const std::optional<worker::Available>& of_node) {
  std::vector<worker::Available> limits;
  if (question.config.device == worker::DeviceType::kCuda) {
    const auto least = std::ranges::min_element(spec.gpus, {}, &Gpu::memory);
    if (question.config.train.in_lock_step() && least != spec.gpus.end() && least->memory > 0)
      limits.push_back({.bytes = least->memory, .by = "each GPU, " + least->name, .of_each = true});
    return limits;
  }
  if (of_node) limits.push_back(*of_node);
  if (const auto each = address_space_of_worker(question.spread)) limits.push_back(*each);
  return limits;
}

}  // namespace

Status check_memory(const JobSpec& spec, const std::optional<worker::Available>& available) try {
  const std::optional<Question> question = question_of(spec);
  if (!question) return {};
  const auto& [config, data, spread] = *question;
  Status status;
  if (config.device == worker::DeviceType::kCuda && available)
    status = worker::check_host_memory(config, data, spread, *available);
  const auto teacher = teacher_of(config.train, data.spec);
  for (const worker::Available& limit : limits_of(spec, *question, available))
    if (status.ok()) status = worker::check_memory(config, data, spread, limit, teacher);
  return status;
} catch (const worker::WorkerError&) {
  return {};
}

void find_least_workers(JobSpec* spec, const std::optional<worker::Available>& available) {
  const std::optional<Question> question = question_of(*spec);
  if (!question) return;
  const auto& [config, data, spread] = *question;
  const auto teacher = teacher_of(config.train, data.spec);
  int& least = std::get<BuiltinTrainer>(spec->program).least_workers;
  for (const worker::Available& limit : limits_of(*spec, *question, available))
    least = std::max(least, worker::least_workers(config, data, spread, limit, teacher));
}

std::string small_shm_notice(const JobSpec& spec, const std::optional<std::uint64_t>& size) {
  constexpr std::uint64_t kSmall = std::uint64_t{128} << 20;
  const auto* const trainer = std::get_if<BuiltinTrainer>(&spec.program);
  const auto* const program = std::get_if<ExternalProgram>(&spec.program);
  const bool python = program != nullptr && !program->argv.empty() &&
                      std::filesystem::path(program->argv.front()).filename().string().starts_with("python");
  const bool shares = python || (trainer != nullptr && trainer->cuda);
  if (!size || *size >= kSmall || !shares || std::max(spec.nproc, spec.local_world_size) < 2) return "";
  return "/dev/shm has " + std::to_string(*size >> 20) +
         " MB, where PyTorch and NCCL share memory: if workers end with SIGBUS or say so, give it more "
         "(docker "
         "--shm-size, in a pod an emptyDir with medium: Memory)";
}

}  // namespace dtrun::cmd
