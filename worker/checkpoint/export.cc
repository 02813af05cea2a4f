#include "worker/checkpoint/export.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "proto/base/text_in.h"
#include "proto/json/json.h"
#include "worker/base/error.h"
#include "worker/checkpoint/durable.h"
#include "worker/checkpoint/layout.h"
#include "worker/checkpoint/places.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/model/hub.h"
#include "worker/quantize/gpt2_gguf.h"
#include "worker/tokenizer/load.h"

namespace dtrun::worker {
namespace {

namespace fs = std::filesystem;
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
  Json config = parse_json(text);
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

const char* reader_of(ExportFormat format) {
  return format == ExportFormat::kGguf ? "llama.cpp" : "transformers";
}

struct Gpt2 {
  ModelConfig shape;
  std::vector<float> flat;
};

// Refuses weights that are not finite, and rows of no whole blocks where they are quantized.
Gpt2 gpt2_in(const Safetensors& file, const std::string& hub, const ExportAs& as, const fs::path& source) {
  const auto checked = [&](auto result) {
    if (!result.ok()) result = result.status().within(source.string());
    return value_or_throw(std::move(result));
  };
  Gpt2 model{.shape = checked(gpt2_of_hub(hub)), .flat = {}};
  const Program program = gpt2_program_of(model.shape);
  model.flat = checked(parameter_values(file, program, ""));
  if (!std::ranges::all_of(model.flat, [](float value) { return std::isfinite(value); }))
    throw WorkerError(kExitConfig,
                      source.string() + ": has weights that are not finite: its training diverged");
  if (const Status fits = as.quantize ? check_blocks(program, *as.quantize) : Status(); !fits.ok())
    throw WorkerError(fits.exit_code(), source.string() + ": " + fits.message());
  return model;
}

using Files = std::vector<std::pair<std::string, std::string>>;

}  // namespace

Exported export_model(const fs::path& run, const fs::path& directory, const ExportAs& as) {
  const fs::path source = model_file_of(run);
  const std::string bytes = value_or_throw(read_text(source));
  const Result<Safetensors> file = parse_safetensors(bytes);
  if (!file.ok()) throw WorkerError(kExitNoInput, source.string() + ": " + file.status().message());
  const auto& metadata = file.value().metadata;
  const auto config = metadata.find("config");
  if (config == metadata.end()) {
    const auto model = metadata.find("model");
    throw WorkerError(kExitConfig, source.string() + ": " + reader_of(as.format) + " has no model like " +
                                       (model == metadata.end() ? "this one" : "\"" + model->second + "\"") +
                                       "; docs/model.md tells how PyTorch loads it");
  }
  refuse_run(directory, run_directory_of(source));
  Json hub = hub_config(config->second, source);
  std::optional<LoadedTokenizer> tokenizer;
  if (const fs::path run_directory = run_directory_of(source); has_tokenizer(run_directory))
    tokenizer = value_or_throw(load_tokenizer(run_directory));
  if (const auto end = tokenizer ? tokenizer->tokenizer->id_of(kEndOfText) : std::nullopt)
    hub["bos_token_id"] = hub["eos_token_id"] = *end;
  const std::string hub_text = json_text(hub, 2) + "\n";
  Files files;
  if (as.format == ExportFormat::kGguf) {
    const Gpt2 model = gpt2_in(file.value(), hub_text, as, source);
    files.emplace_back("model.gguf", gpt2_gguf(model.shape, model.flat, as.quantize,
                                               tokenizer ? tokenizer->tokenizer.get() : nullptr));
  } else {
    files.emplace_back(kModelFile, bytes);
    if (tokenizer) {
      for (const TokenizerFile& file : tokenizer->files) files.emplace_back(file.name, file.bytes);
      files.emplace_back("tokenizer_config.json", json_text(tokenizer_config(*tokenizer, hub), 2) + "\n");
    }
    files.emplace_back("config.json", hub_text);  // last: transformers loads nothing without it
  }
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
