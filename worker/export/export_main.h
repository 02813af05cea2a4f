// `dtrun export`: a trained model for other programs, and its loss on its own test data.
#pragma once

#include "worker/config/tool_request.h"

namespace dtrun::worker {

// Prints the files that were written, and losses and accuracies if they are asked for, computed on this
// machine's CPU with one lane. Returns the exit code, after a message on standard error.
int export_main(const ExportRequest& request);

}  // namespace dtrun::worker
