// Rows of numbers with a label each, from CSV files (worker/data/csv.h), in memory.
#pragma once

#include <memory>

#include "proto/core/status.h"
#include "worker/data/dataset.h"

namespace dtrun::worker {

// data.path is a directory with train.csv and test.csv; or one file, whose last rows are the test split.
// Failures have EX_NOINPUT and name the file.
Result<std::unique_ptr<Dataset>> load_csv(const DataConfig& config, Split split);
// Looks at the first rows.
Result<DatasetFacts> check_csv(const DataConfig& config);

}  // namespace dtrun::worker
