// The tokenizer of a run, kept in its output directory: `dtrun sample` and `dtrun export` take it from there,
// and a run that goes on finds out that it would read other tokens.
#pragma once

#include "worker/config/config.h"

namespace dtrun::worker {

// Copies the files of the data's tokenizer, if it has one, to output_dir. goes_on: the run has a checkpoint,
// so what is there must be the same. For rank 0. Throws WorkerError: EX_CONFIG if it is another one, and
// whatever reading and writing throws.
void keep_tokenizer(const JobConfig& config, bool goes_on);

}  // namespace dtrun::worker
