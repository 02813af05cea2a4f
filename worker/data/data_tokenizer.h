// The tokenizer of a job's data.
#pragma once

#include <optional>

#include "proto/core/status.h"
#include "worker/config/config.h"
#include "worker/tokenizer/load.h"

namespace dtrun::worker {

// data.tokenizer; for token files without it the tokenizer beside the shards, if a readable one is there.
// Nothing if the job has none. EX_NOINPUT, naming the file; EX_CONFIG if it has more tokens than
// data.vocab_size.
Result<std::optional<LoadedTokenizer>> tokenizer_of(const DataConfig& config);

}  // namespace dtrun::worker
