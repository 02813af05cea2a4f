#include "cmd/commands/job_file_options.h"

namespace dtrun::cmd {

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
