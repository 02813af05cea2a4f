#include "cmd/check/memory_check.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "proto/base/memory_limit.h"
#include "worker/base/error.h"
#include "worker/checkpoint/trained_model.h"
#include "worker/data/dataset.h"
#include "worker/memory/need.h"

namespace dtrun::cmd {
namespace {

// Nothing where check_memory() is OK in any case.
std::optional<worker::TrainingJob> job_of(const JobSpec& spec) try {
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
  config.value().device = trainer->cuda ? worker::DeviceType::kCuda : worker::DeviceType::kCpu;
  std::shared_ptr<worker::Teacher> teacher;
  if (train.distill_from) {
    teacher = std::make_shared<worker::Teacher>();
    teacher->program = worker::find_teacher(train, data.value().spec).program;
  }
  // Microbatches in lock step wait until there are nodes enough: least_workers().
  const int nodes = train.in_lock_step() ? spec.nodes.max : spec.nodes.min;
  return worker::training_job(config.value(), data.value(),
                              {.lanes = trainer->lanes,
                               .workers_of_node = std::max(spec.nproc, spec.local_world_size),
                               .world_size = spec.nproc * nodes},
                              std::move(teacher));
} catch (const worker::WorkerError&) {
  return std::nullopt;
}

std::vector<worker::Available> limits_of(const JobSpec& spec, const worker::TrainingJob& job,
                                         const std::optional<worker::Available>& of_node) {
  std::vector<worker::Available> limits;
  if (job.config.device == worker::DeviceType::kCuda) {
    const auto least = std::ranges::min_element(spec.gpus, {}, &Gpu::memory);
    if (job.config.train.in_lock_step() && least != spec.gpus.end() && least->memory > 0)
      limits.push_back({.bytes = least->memory, .by = "each GPU, " + least->name, .of_each = true});
    return limits;
  }
  if (of_node) limits.push_back(*of_node);
  if (const std::optional<std::uint64_t> limit = memory_limit())
    limits.push_back({.bytes = *limit,
                      .by = std::to_string(*limit >> 20) + " MiB for each process, ulimit -v",
                      .of_each = true});
  return limits;
}

}  // namespace

Status check_memory(const JobSpec& spec, const std::optional<worker::Available>& available) {
  const std::optional<worker::TrainingJob> job = job_of(spec);
  if (!job) return {};
  if (job->config.device == worker::DeviceType::kCuda && available)
    RETURN_IF_ERROR(worker::check_host_memory(*job, *available));
  for (const worker::Available& limit : limits_of(spec, *job, available))
    RETURN_IF_ERROR(worker::check_memory(*job, limit));
  return {};
}

void find_least_workers(JobSpec* spec, const std::optional<worker::Available>& available) {
  const std::optional<worker::TrainingJob> job = job_of(*spec);
  if (!job) return;
  int& least = std::get<BuiltinTrainer>(spec->program).least_workers;
  for (const worker::Available& limit : limits_of(*spec, *job, available))
    least = std::max(least, worker::least_workers(*job, limit));
}

}  // namespace dtrun::cmd
