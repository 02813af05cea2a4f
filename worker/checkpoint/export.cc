#include "worker/checkpoint/export.h"

#include <fstream>
#include <string>

#include "worker/base/error.h"
#include "worker/checkpoint/durable.h"
#include "worker/checkpoint/places.h"
#include "worker/checkpoint/safetensors.h"

namespace dtrun::worker {
namespace {

namespace fs = std::filesystem;

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(file)), {});
  if (!file.is_open() || file.bad()) throw WorkerError(kExitNoInput, "cannot read " + path.string());
  return bytes;
}

}  // namespace

Exported export_model(const fs::path& run, const fs::path& directory) {
  const fs::path source = model_file_of(run);
  const std::string bytes = read_file(source);
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
  make_directories(directory);
  const std::string_view text = config->second, model = bytes;
  replace_file(directory / kModelFile, {&model, 1});
  replace_file(directory / "config.json", {&text, 1});
  return {.source = source, .directory = directory};
}

}  // namespace dtrun::worker
