#include "cmd/commands/job_file_options.h"

#include <filesystem>
#include <utility>

#include "cmd/plan/config_file.h"
#include "proto/base/text_in.h"

namespace dtrun::cmd {
namespace {

// Not what variables here say, which may be meant for other jobs.
std::vector<std::string> typed_options(const GivenByName& values, std::span<const OptionEntry> own) {
  std::vector<std::string> words;
  for (const OptionEntry& option : kOptions) {
    const auto found = values.find(option.name);
    const bool is_own = std::ranges::any_of(
        own, [&](const OptionEntry& one) { return std::string_view(one.name) == option.name; });
    if (found == values.end() || is_own || !found->second.source.starts_with("--")) continue;
    const std::string name = "--" + std::string(option.name);
    if (option.is_flag() && found->second.value == "true") words.push_back(name);
    if (option.is_flag()) continue;
    for (const std::string& value : repeated_values(found->second)) words.push_back(name + "=" + value);
  }
  return words;
}

}  // namespace

Result<JobProgram> read_job(const Invocation& invocation, std::span<const OptionEntry> own) {
  JobProgram job{.config = {}, .options = typed_options(invocation.values, own), .path = invocation.argument};
  Options typed;
  typed.values = invocation.values;
  typed.program = {invocation.argument};
  typed.program_is_verbatim = invocation.is_verbatim;
  if (names_config(typed)) {
    ASSIGN_OR_RETURN(ConfigFile file, read_job_config(invocation.argument, invocation.more));
    job.config = std::move(file.config);
    job.text = std::move(file.text);
    job.words = invocation.more;
    return job;
  }
  const bool is_script = invocation.argument.ends_with(".py") && !typed.program_is_verbatim &&
                         !typed.flag("module") && !typed.flag("no_python");
  std::error_code ignored;
  if (is_script && std::filesystem::exists(invocation.argument, ignored)) {
    ASSIGN_OR_RETURN(job.text, read_text(invocation.argument));
    job.words = invocation.more;
    return job;
  }
  if (typed.program_is_verbatim) job.words.emplace_back("--");
  job.words.push_back(invocation.argument);
  job.words.insert(job.words.end(), invocation.more.begin(), invocation.more.end());
  return job;
}

Result<NodeCount> nodes_of(const std::optional<Given>& nnodes, const worker::LaunchConfig& launch) {
  return parse_nodes(nnodes.value_or(Given{.value = launch.nnodes.value_or("1"), .source = "launch.nnodes"}));
}

Result<int> restarts_of(const std::optional<Given>& max_restarts, const worker::LaunchConfig& launch) {
  int restarts = launch.max_restarts.value_or(10);
  const Status status = read_number(max_restarts, &restarts);
  return status.ok() ? Result<int>(restarts) : status;
}

std::string value_of(const std::optional<Given>& given, const char* otherwise) {
  return given ? given->value : otherwise;
}

Status read_number(const std::optional<Given>& given, int* number) {
  return read_given(given, number,
                    [](const Given& value) { return parse_int(value, 0, "a whole number from 0 on"); });
}

}  // namespace dtrun::cmd
