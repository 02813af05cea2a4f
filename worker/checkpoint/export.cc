#include "worker/checkpoint/export.h"

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "proto/base/text_in.h"
#include "worker/base/error.h"
#include "worker/checkpoint/durable.h"
#include "worker/checkpoint/places.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/tokenizer/load.h"

namespace dtrun::worker {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// The tokenizer_config.json that transformers reads beside the tokenizer's files.
Json tokenizer_config(const LoadedTokenizer& loaded, const Json& hub) {
  const Tokenizer& tokenizer = *loaded.tokenizer;
  // PreTrainedTokenizerFast reads a tokenizer.json; GPT2Tokenizer reads the other two files.
  const bool whole = loaded.files.size() == 1;
  Json config{{"tokenizer_class", whole ? "PreTrainedTokenizerFast" : "GPT2Tokenizer"},
              {"add_prefix_space", tokenizer.spec().add_prefix_space},
              {"clean_up_tokenization_spaces", false},
              {"model_max_length", hub.at("n_positions")}};
  if (tokenizer.id_of(kEndOfText)) config["bos_token"] = config["eos_token"] = kEndOfText;
  return config;
}

// The config for transformers, from the model's metadata.
Json hub_config(const std::string& text, const fs::path& source) {
  Json config = Json::parse(text, nullptr, false);
  if (config.is_object() && config.contains("n_positions")) return config;
  throw WorkerError(kExitNoInput, source.string() +
                                      ": its metadata \"config\" is not what a run writes: the file is "
                                      "damaged, or of another program");
}

// Refuses a run's directory, also that of the checkpoint's run: its config.json must not be overwritten.
void refuse_run(const fs::path& directory, const fs::path& run) {
  std::error_code error;
  const bool is_run = fs::equivalent(directory, run, error) || fs::exists(directory / kStateFile, error) ||
                      fs::exists(directory / "metrics.jsonl", error) || !list_checkpoints(directory).empty();
  if (is_run)
    throw WorkerError(kExitCannotCreate, directory.string() +
                                             " is the directory of a run, whose own config.json and model "
                                             "would be replaced; choose another one");
}

}  // namespace

Exported export_model(const fs::path& run, const fs::path& directory) {
  const fs::path source = model_file_of(run);
  const std::string bytes = value_or_throw(read_text(source));
  const Result<Safetensors> file = parse_safetensors(bytes);
  if (!file.ok()) throw WorkerError(kExitNoInput, source.string() + ": " + file.status().message());
  const auto& metadata = file.value().metadata;
  const auto config = metadata.find("config");
  if (config == metadata.end()) {
    const auto model = metadata.find("model");
    throw WorkerError(kExitConfig, source.string() + ": transformers has no model like " +
                                       (model == metadata.end() ? "this one" : "\"" + model->second + "\"") +
                                       "; docs/model.md tells how PyTorch loads it");
  }
  refuse_run(directory, run_directory_of(source));
  Json hub = hub_config(config->second, source);
  std::vector<std::pair<std::string, std::string>> files{{kModelFile, bytes}};
  if (const fs::path run_directory = run_directory_of(source); has_tokenizer(run_directory)) {
    const LoadedTokenizer loaded = value_or_throw(load_tokenizer(run_directory));
    for (const TokenizerFile& file : loaded.files) files.emplace_back(file.name, file.bytes);
    files.emplace_back("tokenizer_config.json", tokenizer_config(loaded, hub).dump(2) + "\n");
    if (const auto end = loaded.tokenizer->id_of(kEndOfText))
      hub["bos_token_id"] = hub["eos_token_id"] = *end;
  }
  files.emplace_back("config.json", hub.dump(2) + "\n");  // last: transformers loads nothing without it
  make_directories(directory);
  Exported done{.source = source, .directory = directory, .files = {}};
  for (const auto& [name, text] : files) {
    const std::string_view piece = text;
    replace_file(directory / name, {&piece, 1});
    done.files.push_back(name);
  }
  return done;
}

}  // namespace dtrun::worker
