// The config for commands that write the files to run a job elsewhere.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cmd/options/command.h"
#include "proto/core/status.h"
#include "worker/config/config.h"

namespace dtrun::cmd {

struct JobConfigFile {
  std::string text;                    // of the file
  std::vector<std::string> overrides;  // KEY=VALUE, as typed
  worker::JobConfig config;            // of both
};

// Reads CONFIG.json and KEY=VALUE of the command line. EX_NOINPUT, or EX_CONFIG with every fault.
Result<JobConfigFile> read_job_config(const Invocation& invocation);

std::string value_of(const std::optional<Given>& given, const char* otherwise);
// Writes the option's number to `number`, which stays as it is if none is given. EX_USAGE.
Status read_number(const std::optional<Given>& given, int* number);

}  // namespace dtrun::cmd
