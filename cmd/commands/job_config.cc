#include "cmd/commands/job_config.h"

#include <utility>

#include "cmd/options/values.h"
#include "cmd/plan/config_file.h"

namespace dtrun::cmd {

Result<JobConfigFile> read_job_config(const Invocation& invocation) {
  JobConfigFile file;
  Result<std::string> text = read_config_file(invocation.argument);
  if (!text.ok()) return text.status();
  file.text = std::move(text).value();
  if (!invocation.second.empty()) file.overrides.push_back(invocation.second);
  file.overrides.insert(file.overrides.end(), invocation.more.begin(), invocation.more.end());
  Result<worker::JobConfig> config = worker::parse_config(file.text, invocation.argument, file.overrides);
  if (!config.ok()) return config.status();
  file.config = std::move(config).value();
  return file;
}

std::string value_of(const std::optional<Given>& given, const char* otherwise) {
  return given ? given->value : otherwise;
}

Status read_number(const std::optional<Given>& given, int* number) {
  if (!given) return {};
  const Result<int> count = parse_int(*given, 0, "a whole number from 0 on");
  if (!count.ok()) return count.status();
  *number = count.value();
  return {};
}

}  // namespace dtrun::cmd
