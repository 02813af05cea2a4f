// A data set without files, the same on every machine: each class has a pattern of its own, and a sample is
// the pattern of its class under noise. For trying things out and for measuring; any network can learn it.
#pragma once

#include <memory>

#include "proto/core/status.h"
#include "worker/data/dataset.h"

namespace dtrun::worker {

// Samples are computed on demand and take no memory.
Result<std::unique_ptr<Dataset>> load_synthetic(const DataConfig& config, Split split);
Result<DatasetFacts> check_synthetic(const DataConfig& config);  // nothing can be wrong

}  // namespace dtrun::worker
