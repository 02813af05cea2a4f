// Text from a trained model, for `dtrun sample`, which runs dtrun-worker for it.
#pragma once

#include "worker/config/tool_request.h"

namespace dtrun::worker {

// Writes to standard output as it goes, and errors to standard error. Returns the exit code. REQUIRES: dtrun
// has checked the request.
int sample_main(const SampleRequest& request);

}  // namespace dtrun::worker
