// Text to token shards, for `dtrun prepare`, which runs dtrun-worker for it.
#pragma once

#include <string>
#include <vector>

namespace dtrun::worker {

// DIR TOKENIZER EOS_TOKEN NAME SHARD_TOKENS VAL_FRACTION JSON_FIELD FILES THREADS TEXT..., numbers checked by
// dtrun. DIR exists whole or not at all. Writes the summary to standard output, and errors to standard error.
// Returns the exit code.
int prepare_main(const std::vector<std::string>& arguments);

}  // namespace dtrun::worker
