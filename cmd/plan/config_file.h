// The text of a config file.
#pragma once

#include <string>

#include "proto/core/status.h"

namespace dtrun::cmd {

// EX_NOINPUT if it cannot be read. Reads at most a few bytes more than a config may have.
Result<std::string> read_config_file(const std::string& path);

}  // namespace dtrun::cmd
