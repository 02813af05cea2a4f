// The data sets by type.
#include "worker/data/dataset.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <string_view>

#include "worker/base/error.h"
#include "worker/data/fashion_mnist.h"

namespace dtrun::worker {
namespace {

struct Kind {
  std::string_view type;  // also a choice of /data/type in worker/config/options.cc
  Result<std::unique_ptr<Dataset>> (*load)(const std::filesystem::path&, Split);
  Status (*check)(const std::filesystem::path&);
};

constexpr Kind kKinds[] = {
    {.type = "fashion_mnist", .load = load_fashion_mnist, .check = check_fashion_mnist}};

Result<const Kind*> kind_of(const DataConfig& config) {
  const auto* kind = std::ranges::find(kKinds, config.type, &Kind::type);
  if (kind != std::end(kKinds)) return kind;
  return Status(kExitConfig, "/data/type: \"" + config.type + "\" is not known");
}

}  // namespace

std::unique_ptr<Dataset> load_dataset(const DataConfig& config, Split split) {
  const Result<const Kind*> kind = kind_of(config);
  Result<std::unique_ptr<Dataset>> dataset = kind.status();
  if (kind.ok()) dataset = kind.value()->load(config.path, split);
  if (!dataset.ok()) throw WorkerError(dataset.status().exit_code(), dataset.status().message());
  return std::move(dataset).value();
}

Status check_dataset(const DataConfig& config) {
  const Result<const Kind*> kind = kind_of(config);
  return kind.ok() ? kind.value()->check(config.path) : kind.status();
}

}  // namespace dtrun::worker
