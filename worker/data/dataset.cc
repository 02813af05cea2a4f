// The data sets by type.
#include "worker/data/dataset.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "worker/base/error.h"
#include "worker/data/csv_dataset.h"
#include "worker/data/fashion_mnist.h"
#include "worker/data/idx_dataset.h"
#include "worker/data/synthetic.h"
#include "worker/data/text.h"
#include "worker/data/tokens.h"

namespace dtrun::worker {
namespace {

struct DatasetType {
  std::string_view type;  // also a choice of /data/type in worker/config/options.cc
  Result<std::unique_ptr<Dataset>> (*load)(const DataConfig&, Split);
  Result<DatasetFacts> (*check)(const DataConfig&);
};

constexpr DatasetType kKinds[] = {
    {.type = "fashion_mnist", .load = load_fashion_mnist, .check = check_fashion_mnist},
    {.type = "idx", .load = load_idx, .check = check_idx},
    {.type = "tokens", .load = load_tokens, .check = check_tokens},
    {.type = "text", .load = load_text, .check = check_text},
    {.type = "csv", .load = load_csv, .check = check_csv},
    {.type = "synthetic", .load = load_synthetic, .check = check_synthetic},
};

Result<const DatasetType*> kind_of(const DataConfig& config) {
  const auto* kind = std::ranges::find(kKinds, config.type, &DatasetType::type);
  if (kind != std::end(kKinds)) return kind;
  return Status(kExitConfig, "/data/type: \"" + config.type + "\" is not known");
}

}  // namespace

std::unique_ptr<Dataset> load_dataset(const DataConfig& config, Split split) {
  const Result<const DatasetType*> kind = kind_of(config);
  Result<std::unique_ptr<Dataset>> dataset = kind.status();
  if (kind.ok()) dataset = kind.value()->load(config, split);
  if (!dataset.ok()) throw WorkerError(dataset.status().exit_code(), dataset.status().message());
  return std::move(dataset).value();
}

Result<DatasetFacts> check_dataset(const DataConfig& config) {
  const Result<const DatasetType*> kind = kind_of(config);
  if (!kind.ok()) return kind.status();
  return kind.value()->check(config);
}

}  // namespace dtrun::worker
