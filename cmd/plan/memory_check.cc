#include "cmd/plan/memory_check.h"

#include <algorithm>
#include <filesystem>
#include <memory>

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

}  // namespace

Status check_memory(const JobSpec& spec, const std::optional<worker::Available>& available) {
  const auto* trainer = std::get_if<BuiltinTrainer>(&spec.program);
  if (trainer == nullptr || (trainer->cuda && !trainer->in_memory_checkpoints) || !available) return {};
  const Result<worker::JobConfig> config = worker::parse_config(trainer->config_json, "config", {});
  if (!config.ok()) return {};
  const Result<worker::DatasetFacts> data = worker::check_dataset(config.value().data);
  if (!data.ok()) return {};
  const worker::Spread spread{.lanes = trainer->lanes,
                              .workers_of_node = std::max(spec.nproc, spec.local_world_size),
                              .world_size = spec.nproc * spec.nodes.min};
  try {
    if (trainer->cuda) return worker::check_host_copies(config.value(), data.value(), spec.nproc, *available);
    return worker::check_memory(config.value(), data.value(), spread, *available,
                                teacher_of(config.value().train, data.value().spec));
  } catch (const worker::WorkerError&) {
    return {};
  }
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
