// Any data set in the files of the MNIST family: EMNIST, KMNIST, or a user's own arrays of bytes.
#pragma once

#include <memory>

#include "proto/core/status.h"
#include "worker/data/dataset.h"

namespace dtrun::worker {

// data.path is a directory with four IDX files, as gzip or not: their names have "-idx" in them, and "train",
// or "t10k" or "test"; those of the labels "labels" as well. Failures have EX_NOINPUT and name the file.
Result<std::unique_ptr<Dataset>> load_idx(const DataConfig& config, Split split);
Result<DatasetFacts> check_idx(const DataConfig& config);

}  // namespace dtrun::worker
