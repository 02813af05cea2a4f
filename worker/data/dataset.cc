// The data sets by type.
#include "worker/data/dataset.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "worker/base/bits_hash.h"
#include "worker/base/error.h"
#include "worker/base/pulse.h"
#include "worker/data/dataset_types.h"
#include "worker/data/images/augment.h"
#include "worker/data/node_memory.h"

namespace dtrun::worker {
namespace {

struct DatasetType {
  DataType type;
  LoadedDataset (*load)(const DataConfig&, Split, NodeMemory&);
  Result<DatasetFacts> (*check)(const DataConfig&);
};

constexpr DatasetType kKinds[] = {
    {.type = DataType::kFashionMnist, .load = load_fashion_mnist, .check = check_fashion_mnist},
    {.type = DataType::kIdx, .load = load_idx, .check = check_idx},
    {.type = DataType::kTokens, .load = load_tokens, .check = check_tokens},
    {.type = DataType::kText, .load = load_text, .check = check_text},
    {.type = DataType::kCsv, .load = load_csv, .check = check_csv},
    {.type = DataType::kCifar10, .load = load_cifar, .check = check_cifar},
    {.type = DataType::kCifar100, .load = load_cifar, .check = check_cifar},
    {.type = DataType::kImageFolder, .load = load_image_folder, .check = check_image_folder},
    {.type = DataType::kSynthetic, .load = load_synthetic, .check = check_synthetic},
};
static_assert(std::size(kKinds) == kNamesOf<DataType>.size());

const DatasetType& kind_of(const DataConfig& config) {
  return *std::ranges::find(kKinds, config.type, &DatasetType::type);
}

}  // namespace

std::uint64_t hash_of_some(const Dataset& data) {
  constexpr std::int64_t kSome = 256;
  const SampleSpec spec = data.spec();
  const bool tokens = spec.input == SampleSpec::Input::kTokens;
  std::vector<float> values(tokens ? 0 : spec.shape.size());
  std::vector<std::int32_t> integers((tokens ? spec.shape.size() : 0) +
                                     static_cast<std::size_t>(spec.targets));
  std::uint64_t hash = 0;
  const std::int64_t some = std::min(kSome, data.size());
  for (std::int64_t i = 0; i < some; ++i) {
    const auto sample = static_cast<std::uint32_t>(some == 1 ? 0 : (data.size() - 1) * i / (some - 1));
    data.fill(
        {&sample, 1},
        {.values = values.data(), .tokens = integers.data() + spec.targets, .targets = integers.data()});
    hash = joint_hash({hash, bits_hash(values), hash_of_words(integers.size(), [&](std::size_t k) {
                         return static_cast<std::uint32_t>(integers[k]);
                       })});
    Pulse::beat();
  }
  return hash;
}

std::string shape_text(const SampleShape& shape) {
  return std::to_string(shape.channels) + "x" + std::to_string(shape.height) + "x" +
         std::to_string(shape.width);
}

std::unique_ptr<Dataset> load_dataset(const DataConfig& config, Split split, NodeMemory& memory) {
  std::unique_ptr<Dataset> data = value_or_throw(kind_of(config).load(config, split, memory));
  return split == Split::kTrain ? augmented(config, std::move(data)) : std::move(data);
}

std::unique_ptr<Dataset> load_dataset(const DataConfig& config, Split split) {
  NodeMemory own;
  return load_dataset(config, split, own);
}

Result<DatasetFacts> check_dataset(const DataConfig& config) { return kind_of(config).check(config); }

}  // namespace dtrun::worker
