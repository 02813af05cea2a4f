// Text to token shards, for `dtrun prepare`, which runs dtrun-worker for it.
#pragma once

#include "worker/config/tool_request.h"

namespace dtrun::worker {

// The directory exists whole or not at all. Writes the summary to standard output, and errors to standard
// error. Returns the exit code. REQUIRES: dtrun has checked the request.
int prepare_main(const PrepareRequest& request);

}  // namespace dtrun::worker
