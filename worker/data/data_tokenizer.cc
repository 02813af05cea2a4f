#include "worker/data/data_tokenizer.h"

#include <filesystem>
#include <string>

#include "worker/data/message.h"

namespace dtrun::worker {
namespace {

namespace fs = std::filesystem;

Result<std::optional<LoadedTokenizer>> beside_shards(const fs::path& data) {
  std::error_code error;
  const fs::path directory = fs::is_directory(data, error) ? data : data.parent_path();
  if (!has_tokenizer(directory)) return std::optional<LoadedTokenizer>();
  auto loaded = load_tokenizer(directory);
  // The config names no tokenizer, and training on tokens needs none.
  if (!loaded.ok()) return std::optional<LoadedTokenizer>();
  return std::optional(std::move(loaded).value());
}

}  // namespace

Result<std::optional<LoadedTokenizer>> tokenizer_of(const DataConfig& config) {
  const bool tokens = config.type == DataType::kTokens;
  if (!config.tokenizer) {
    if (!tokens) return std::optional<LoadedTokenizer>();
    auto beside = beside_shards(config.path);
    if (beside.ok() && beside.value() && beside.value()->tokenizer->size() > config.vocab_size) {
      return Status(kExitConfig, "/data/vocab_size: " + std::to_string(config.vocab_size) +
                                     ", but the tokenizer beside the tokens in " + config.path + " has " +
                                     std::to_string(beside.value()->tokenizer->size()) +
                                     " tokens; set it to that or more");
    }
    return beside;
  }
  auto loaded = load_tokenizer(*config.tokenizer);
  if (!loaded.ok()) return loaded.status().within("data.tokenizer");
  const int size = loaded.value().tokenizer->size();
  if (tokens && size > config.vocab_size) {
    return Status(kExitConfig, "/data/vocab_size: " + std::to_string(config.vocab_size) +
                                   ", but the tokenizer in " + *config.tokenizer + " has " +
                                   std::to_string(size) + " tokens; set it to that or more");
  }
  return std::optional(std::move(loaded).value());
}

}  // namespace dtrun::worker
