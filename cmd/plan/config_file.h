// A config file of the built-in trainer.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "proto/core/status.h"
#include "worker/config/config.h"

namespace dtrun::cmd {

struct ConfigFile {
  std::string text;
  worker::JobConfig config;  // of the text and the overrides
};

// `overrides`: KEY=VALUE, as typed. `text`: the file's, where it is known already; the file is not read then.
// EX_NOINPUT if it cannot be read, or EX_CONFIG with every fault.
Result<ConfigFile> read_job_config(const std::string& path, std::span<const std::string> overrides,
                                   std::optional<std::string> text = {});

}  // namespace dtrun::cmd
