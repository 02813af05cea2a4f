// Fashion-MNIST (and any data set in its four-file form): images of one channel in ten classes.
#pragma once

#include <memory>

#include "proto/core/status.h"
#include "worker/data/dataset.h"

namespace dtrun::worker {

// Failures have EX_NOINPUT and name the file.
Result<std::unique_ptr<Dataset>> load_fashion_mnist(const DataConfig& config, Split split);
Result<DatasetFacts> check_fashion_mnist(const DataConfig& config);

}  // namespace dtrun::worker
