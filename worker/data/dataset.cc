// The data sets by type.
#include "worker/data/dataset.h"

#include "worker/base/error.h"
#include "worker/data/fashion_mnist.h"

namespace dtrun::worker {

namespace {
Status unknown_type(const DataConfig& config) {
  return Status(kExitConfig, "/data/type: \"" + config.type + "\" is not known (allowed: \"fashion_mnist\")");
}
}  // namespace

std::unique_ptr<Dataset> load_dataset(const DataConfig& config, Split split) {
  Result<std::unique_ptr<Dataset>> dataset = unknown_type(config);
  if (config.type == "fashion_mnist") dataset = load_fashion_mnist(config.path, split);
  if (!dataset.ok()) throw WorkerError(dataset.status().exit_code(), dataset.status().message());
  return std::move(dataset).value();
}

Status check_dataset(const DataConfig& config) {
  if (config.type == "fashion_mnist") return check_fashion_mnist(config.path);
  return unknown_type(config);
}

}  // namespace dtrun::worker
