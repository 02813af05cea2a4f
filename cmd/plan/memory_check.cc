#include "cmd/plan/memory_check.h"

#include "worker/base/error.h"
#include "worker/data/dataset.h"
#include "worker/memory/need.h"

namespace dtrun::cmd {

Status check_memory(const JobSpec& spec, const std::optional<worker::Available>& available) {
  const auto* trainer = std::get_if<BuiltinTrainer>(&spec.program);
  if (trainer == nullptr || (trainer->cuda && !trainer->host_copies) || !available) return {};
  const Result<worker::JobConfig> config = worker::parse_config(trainer->config_json, "config", {});
  if (!config.ok()) return {};
  const Result<worker::DatasetFacts> data = worker::check_dataset(config.value().data);
  if (!data.ok()) return {};
  const worker::Spread spread{
      .lanes = trainer->lanes, .workers_of_node = spec.nproc, .world_size = spec.nproc * spec.nodes.min};
  try {
    if (trainer->cuda) return worker::check_host_copies(config.value(), data.value(), spec.nproc, *available);
    return worker::check_memory(config.value(), data.value(), spread, *available);
  } catch (const worker::WorkerError&) {
    return {};
  }
}

}  // namespace dtrun::cmd
