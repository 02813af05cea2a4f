// `dtrun profile`: runs some steps of a job on one worker, and reports their time.
#pragma once

#include "worker/config/tool_request.h"

namespace dtrun::worker {

// Writes to standard output; does not touch the job's output_dir. Returns the exit code. REQUIRES: dtrun has
// checked the request.
int profile_main(const ProfileRequest& request);

}  // namespace dtrun::worker
