// Log set-up that dtrun and dtrun-worker share: spdlog to standard error, level from DTRUN_LOG_LEVEL
// (trace, debug, info, warn, error; default info). Use spdlog's own functions to log.
#pragma once

#include <string>

namespace dtrun {

// `who` is put before each line ("dtrun", empty for a worker, whose lines the agent prefixes).
// Call once, before any thread starts.
void set_up_log(const std::string& who);

}  // namespace dtrun
