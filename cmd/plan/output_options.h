// The options of the group "Output": where each worker's streams go, and how lines look.
#pragma once

#include "cmd/plan/draft.h"

namespace dtrun::cmd {

// Fills spec.log_dir and spec.output. REQUIRES: spec.nproc is known.
Status read_output_options(Draft& draft);

}  // namespace dtrun::cmd
