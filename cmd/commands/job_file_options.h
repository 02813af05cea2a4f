// The job of a command that writes how it is run elsewhere: the options, and what they mean there.
#pragma once

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cmd/options/command.h"
#include "cmd/options/option_table.h"
#include "cmd/options/options.h"
#include "cmd/options/values.h"
#include "proto/core/status.h"
#include "worker/config/config.h"

namespace dtrun::cmd {

inline constexpr OptionEntry kNodesOption = kOptionOfLauncher<"nnodes", "launch.nnodes, else 1">;
// A scheduler takes nodes away in the best of jobs.
inline constexpr OptionEntry kRestartsOption = kOptionOfLauncher<"max_restarts", "from CONFIG, else 10">;

// True of an option of the launcher that any job may have: none of one node's own command line, of hosts that
// it names, or for a text in place of a job.
constexpr bool is_of_any_job(const OptionEntry& option) {
  constexpr std::string_view kOfOneCommandLine[] = {"standalone",  "node_rank",    "topology",
                                                    "master_addr", "local_addr",   "key_file",
                                                    "insecure",    "rdzv_backend", "dry_run"};
  const bool is_text = option.asks_for_text || std::string_view(option.group) == kTextGroup;
  return !is_text && std::string_view(option.group) != group::kHosts &&
         std::ranges::find(kOfOneCommandLine, option.name) == std::end(kOfOneCommandLine);
}

// A command's own options, then the launcher's that any job may have and that are not among them.
template <const auto& Own>
constexpr auto with_those_of_jobs() {
  constexpr auto kIsTaken = [](const OptionEntry& option) {
    return is_of_any_job(option) && std::ranges::none_of(Own, [&](const OptionEntry& own) {
             return std::string_view(own.name) == option.name;
           });
  };
  std::array<OptionEntry, std::size(Own) + std::ranges::count_if(kOptions, kIsTaken)> all{};
  std::ranges::copy_if(kOptions, std::ranges::copy(Own, all.begin()).out, kIsTaken);
  return all;
}

// What such a command runs: a config with its overrides, a script, or any program.
struct JobProgram {
  std::optional<worker::JobConfig> config;  // of a config
  std::optional<std::string> text = {};     // the config's, or the script's; nothing: it is no file of here
  std::vector<std::string> options = {};    // of the launcher, as they were typed: "--name=value"
  std::vector<std::string> words = {};      // behind that file, or all, with "--" if it came before them
  std::string path = {};                    // of the file or the program, as it was typed

  worker::LaunchConfig launch() const { return config ? config->launch : worker::LaunchConfig(); }
};

// `own`: the options that the command itself interprets. Reads the config, which must be right, or the
// script, if it is here. EX_USAGE, EX_CONFIG or EX_NOINPUT.
Result<JobProgram> read_job(const Invocation& invocation, std::span<const OptionEntry> own);

// Where the options are not given, the config's launch section counts, then their defaults. EX_USAGE.
Result<NodeCount> nodes_of(const std::optional<Given>& nnodes, const worker::LaunchConfig& launch);
Result<int> restarts_of(const std::optional<Given>& max_restarts, const worker::LaunchConfig& launch);

std::string value_of(const std::optional<Given>& given, const char* otherwise);
// Writes the option's number to `number`, which stays as it is if none is given. EX_USAGE.
Status read_number(const std::optional<Given>& given, int* number);

}  // namespace dtrun::cmd
