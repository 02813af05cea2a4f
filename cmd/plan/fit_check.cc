#include "cmd/plan/fit_check.h"

#include "worker/data/dataset.h"
#include "worker/memory/need.h"

namespace dtrun::cmd {

Status check_fit(const JobSpec& spec) {
  const auto* trainer = std::get_if<BuiltinTrainer>(&spec.program);
  if (trainer == nullptr) return {};
  const Result<worker::JobConfig> config = worker::parse_config(trainer->config_json, "config", {});
  if (!config.ok()) return {};
  const Result<worker::DatasetFacts> data = worker::check_dataset(config.value().data);
  return data.ok() ? worker::check_fit(config.value(), data.value()) : Status();
}

}  // namespace dtrun::cmd
