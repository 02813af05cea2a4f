// The log of dtrun and dtrun-worker: lines on standard error. DTRUN_LOG_LEVEL is the level from which on they
// are written (trace, debug, info, warn, error; default info). Callable from any thread.
#pragma once

#include <functional>
#include <string>

namespace dtrun {

// `who` is put before each line ("dtrun", empty for a worker, whose lines the agent prefixes).
// Call once, before any thread starts.
void set_up_log(const std::string& who);

// One line each, as it is; `text` has no newline at its end.
void log_debug(const std::string& text);
void log_info(const std::string& text);
void log_warn(const std::string& text);

// For tests: from now on lines of level info and above go to `reader`, one call at a time, instead of to
// standard error. Not while another thread may log.
void set_log_reader(std::function<void(const std::string& text)> reader);

}  // namespace dtrun
