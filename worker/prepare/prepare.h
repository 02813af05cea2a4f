// Text to token shards, for `dtrun prepare`, which runs dtrun-worker for it.
#pragma once

#include <string>
#include <vector>

namespace dtrun::worker {

// DIR TOKENIZER EOS_TOKEN NAME SHARD_TOKENS VAL_FRACTION JSON_FIELD FILES THREADS TEXT..., numbers checked by
// dtrun. DIR is there whole or not at all. Writes the summary to standard output. The exit code; what is
// wrong is said on standard error.
int prepare_main(const std::vector<std::string>& arguments);

}  // namespace dtrun::worker
