// Options of a command that writes how a job is run elsewhere.
#pragma once

#include <optional>
#include <string>

#include "cmd/options/option_table.h"
#include "cmd/options/values.h"
#include "proto/core/status.h"
#include "worker/config/config.h"

namespace dtrun::cmd {

inline constexpr OptionEntry kNodesOption = kOptionOfLauncher<"nnodes", "launch.nnodes, else 1">;
// A scheduler takes nodes away in the best of jobs.
inline constexpr OptionEntry kRestartsOption = kOptionOfLauncher<"max_restarts", "from CONFIG, else 10">;

// Where the options are not given, the config's launch section counts, then their defaults. EX_USAGE.
Result<NodeCount> nodes_of(const std::optional<Given>& nnodes, const worker::LaunchConfig& launch);
Result<int> restarts_of(const std::optional<Given>& max_restarts, const worker::LaunchConfig& launch);

std::string value_of(const std::optional<Given>& given, const char* otherwise);
// Writes the option's number to `number`, which stays as it is if none is given. EX_USAGE.
Status read_number(const std::optional<Given>& given, int* number);

}  // namespace dtrun::cmd
