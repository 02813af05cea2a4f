// The options of the group "Output": the targets of each worker's streams, and the form of lines.
#pragma once

#include "cmd/plan/draft.h"

namespace dtrun::cmd {

// Fills spec.log_dir and spec.output. REQUIRES: spec.nproc is known.
Status read_output_options(Draft& draft);

}  // namespace dtrun::cmd
