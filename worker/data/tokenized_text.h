// Text encoded by a tokenizer, in memory: for texts small enough to be encoded anew by every job. `dtrun
// prepare` is for larger ones.
#pragma once

#include <memory>

#include "proto/core/status.h"
#include "worker/data/dataset.h"

namespace dtrun::worker {

// Larger texts are refused, in bytes.
inline constexpr std::uint64_t kLargestTokenizedText = std::uint64_t{2} << 30;

// data.path as for text; each file is encoded by itself, behind <|endoftext|> if the tokenizer has that
// token. The end of the bytes, from the end of a word on, is the test split. REQUIRES: config has a
// tokenizer. Failures have EX_NOINPUT and name the file, EX_CONFIG the option.
Result<std::unique_ptr<Dataset>> load_tokenized_text(const DataConfig& config, Split split,
                                                     NodeMemory& memory);
// Samples and bytes are estimates, made without encoding.
Result<DatasetFacts> check_tokenized_text(const DataConfig& config);

}  // namespace dtrun::worker
