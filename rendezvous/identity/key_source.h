// Where a process finds the key of its job.
#pragma once

#include <optional>
#include <string>

#include "proto/core/status.h"
#include "rendezvous/identity/job_key.h"

namespace dtrun::rendezvous {

// The variable that holds a key as text. Whoever starts other programs takes it out of their environment.
inline constexpr const char* kTokenVariable = "DTRUN_TOKEN";

// `file`: a path, or empty; `source`: who named it ("--token_file"). `text`: kTokenVariable's, or null. The
// file goes before the text; without both there is no key. A file that everybody may read is refused.
// Failures have EX_NOPERM, EX_NOINPUT for a file that cannot be read, or EX_USAGE for an option without one.
Result<std::optional<JobKey>> find_key(const std::string& file, const std::string& source, const char* text);

}  // namespace dtrun::rendezvous
