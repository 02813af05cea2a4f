// Plain text, byte by byte: the files of a directory in name order are one row of bytes, each byte a token.
// Nothing is interpreted, so any file will do. The files are read in place.
// tokenized_text.h reads text with a tokenizer.
#pragma once

#include <memory>

#include "proto/core/status.h"
#include "worker/data/dataset.h"

namespace dtrun::worker {

// data.path is a file or a directory with files at any depth; those whose names begin with a dot are left
// out. The end of the row is the test split. Failures have EX_NOINPUT and name the file.
Result<std::unique_ptr<Dataset>> load_text(const DataConfig& config, Split split);
Result<DatasetFacts> check_text(const DataConfig& config);

}  // namespace dtrun::worker
