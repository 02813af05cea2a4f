// The tokenizer of a run, kept in its output directory: `dtrun sample` and `dtrun export` use it, and a run
// that goes on detects that it would read other tokens.
#pragma once

#include "worker/config/config.h"

namespace dtrun::worker {

// Copies the files of the data's tokenizer, if there is one, to output_dir. goes_on: the run has a
// checkpoint, so a kept tokenizer must be the same. Called on rank 0. Throws WorkerError: EX_CONFIG if the
// kept tokenizer is another one, and errors of reading and writing.
void keep_tokenizer(const JobConfig& config, bool goes_on);

}  // namespace dtrun::worker
