// The options of the group "Output": where each worker's streams go, and how lines look.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "agent/core/job_spec.h"
#include "cmd/options/options.h"
#include "proto/core/status.h"

namespace dtrun::cmd {

using Lookup = std::function<std::optional<Given>(const std::string& name)>;

// Fills spec->log_dir and spec->output. REQUIRES: spec->nproc is known.
Status read_output_options(const Lookup& given, const Environment& environment, const Notice& notice,
                           JobSpec* spec);

}  // namespace dtrun::cmd
