// Text that a tokenizer has made tokens of, in memory: for texts that are not too large to be encoded anew at
// every start. `dtrun prepare` is for the others.
#pragma once

#include <memory>

#include "proto/core/status.h"
#include "worker/data/dataset.h"

namespace dtrun::worker {

// Larger texts are refused, in bytes.
inline constexpr std::uint64_t kLargestTokenizedText = std::uint64_t{2} << 30;

// data.path as for text; each file is encoded by itself, with <|endoftext|> before it if the tokenizer knows
// that. The end of the bytes, from the end of a word on, is for the test. REQUIRES: config has a tokenizer.
// Failures have EX_NOINPUT and name the file, EX_CONFIG the option.
Result<std::unique_ptr<Dataset>> load_tokenized_text(const DataConfig& config, Split split);
// Samples and bytes are about right: nothing is encoded for them.
Result<DatasetFacts> check_tokenized_text(const DataConfig& config);

}  // namespace dtrun::worker
