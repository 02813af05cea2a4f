// The data sets by type.
#include "worker/data/dataset.h"

#include <algorithm>
#include <iterator>

#include "worker/base/error.h"
#include "worker/data/dataset_types.h"

namespace dtrun::worker {
namespace {

struct DatasetType {
  DataType type;
  LoadedDataset (*load)(const DataConfig&, Split);
  Result<DatasetFacts> (*check)(const DataConfig&);
};

constexpr DatasetType kKinds[] = {
    {.type = DataType::kFashionMnist, .load = load_fashion_mnist, .check = check_fashion_mnist},
    {.type = DataType::kIdx, .load = load_idx, .check = check_idx},
    {.type = DataType::kTokens, .load = load_tokens, .check = check_tokens},
    {.type = DataType::kText, .load = load_text, .check = check_text},
    {.type = DataType::kCsv, .load = load_csv, .check = check_csv},
    {.type = DataType::kSynthetic, .load = load_synthetic, .check = check_synthetic},
};
static_assert(std::size(kKinds) == kNamesOf<DataType>.size());

const DatasetType& kind_of(const DataConfig& config) {
  return *std::ranges::find(kKinds, config.type, &DatasetType::type);
}

}  // namespace

std::unique_ptr<Dataset> load_dataset(const DataConfig& config, Split split) {
  return value_or_throw(kind_of(config).load(config, split));
}

Result<DatasetFacts> check_dataset(const DataConfig& config) { return kind_of(config).check(config); }

}  // namespace dtrun::worker
