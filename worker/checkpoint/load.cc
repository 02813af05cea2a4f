// Reading checkpoints: nothing is believed that the manifest does not vouch for.
#include <algorithm>

#include "worker/base/error.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/layout.h"
#include "worker/checkpoint/manifest.h"

namespace dtrun::worker {

namespace {

namespace fs = std::filesystem;

constexpr char kHubPrefix[] = "transformer.";  // in a file of GPT2LMHeadModel

// A failed Result becomes the worker's error; `path` says whose fault it is.
template <typename T>
T value_or_throw(Result<T> result, const fs::path& path) {
  if (!result.ok())
    throw WorkerError(result.status().exit_code(), path.string() + ": " + result.status().message());
  return std::move(result).value();
}
template <typename T>
T value_or_throw(Result<T> result) {
  if (!result.ok()) throw WorkerError(result.status().exit_code(), result.status().message());
  return std::move(result).value();
}

// A verified file with its parsed header, which refers into the content.
struct TensorFile {
  fs::path path;
  std::string content;
  Safetensors parsed;
};

// What every checkpoint has, verified.
struct Files {
  StateText state;
  TensorFile model, optimizer;
};

void read_tensors(const fs::path& directory, const char* name, const Manifest& manifest, TensorFile* file) {
  file->path = directory / name;
  file->content = value_or_throw(read_verified(directory, name, manifest));
  file->parsed = value_or_throw(parse_safetensors(file->content), file->path);
}

std::unique_ptr<Files> read_files(const fs::path& directory) {
  std::error_code error;
  if (!fs::is_directory(directory, error)) {
    throw WorkerError(kExitNoInput, directory.string() +
                                        ": there is no such checkpoint directory; name one such as "
                                        "OUTPUT_DIR/checkpoints/step-00000500, or use \"auto\" or \"none\"");
  }
  const fs::path manifest_path = directory / kManifestFile;
  const Manifest manifest =
      value_or_throw(parse_manifest(value_or_throw(read_whole(manifest_path))), manifest_path);
  auto files = std::make_unique<Files>();  // not moved afterwards: `parsed` points into `content`
  const std::string state = value_or_throw(read_verified(directory, kStateFile, manifest));
  files->state = value_or_throw(parse_state(state), directory / kStateFile);
  read_tensors(directory, kModelFile, manifest, &files->model);
  read_tensors(directory, kOptimizerFile, manifest, &files->optimizer);
  return files;
}

// The newest checkpoint that is not damaged. One of another model is not damaged: what `load` throws then
// goes on.
template <typename Load>
auto newest(const fs::path& output_dir, const Notice& notice, Load load)
    -> std::optional<decltype(load(std::int64_t{}, output_dir))> {
  const auto checkpoints = list_checkpoints(output_dir);
  for (auto entry = checkpoints.rbegin(); entry != checkpoints.rend(); ++entry) {
    try {
      return load(entry->first, entry->second);
    } catch (const WorkerError& error) {
      if (error.exit_code() == kExitConfig) throw;
      if (notice) notice("checkpoint " + entry->second.filename().string() + " passed over: " + error.what());
    }
  }
  return std::nullopt;
}

void check_step(std::int64_t in_name, std::int64_t in_file, const fs::path& directory) {
  if (in_name == in_file) return;
  throw WorkerError(kExitNoInput, (directory / kStateFile).string() + ": is of step " +
                                      std::to_string(in_file) + ", not of the step in the directory's name");
}

}  // namespace

TrainState load_checkpoint(const fs::path& directory, const Program& program) {
  auto files = read_files(directory);
  TrainState state;
  state.step = files->state.step;
  state.config_json = std::move(files->state.config_json);
  state.evaluations = files->state.evaluations;
  state.parameters = value_or_throw(model_values(files->model.parsed, program), files->model.path);
  state.optimizer = value_or_throw(optimizer_values(files->optimizer.parsed, program), files->optimizer.path);
  return state;
}

std::optional<TrainState> load_newest(const fs::path& output_dir, const Program& program,
                                      const Notice& notice) {
  return newest(output_dir, notice, [&](std::int64_t step, const fs::path& directory) {
    TrainState state = load_checkpoint(directory, program);
    check_step(step, state.step, directory);
    return state;
  });
}

std::vector<float> load_parameters(const fs::path& from, const Program& program) {
  std::error_code error;
  const fs::path path = fs::is_directory(from, error) ? from / kModelFile : from;
  const std::string content = value_or_throw(read_whole(path));
  const Safetensors file = value_or_throw(parse_safetensors(content), path);
  const bool prefixed = std::ranges::any_of(
      file.tensors, [](const Tensor& tensor) { return tensor.name.starts_with(kHubPrefix); });
  return value_or_throw(parameter_values(file, program, prefixed ? kHubPrefix : ""), path);
}

bool has_checkpoints(const fs::path& output_dir) { return !list_checkpoints(output_dir).empty(); }

std::optional<std::int64_t> newest_step(const fs::path& output_dir, const Notice& notice) {
  return newest(output_dir, notice, [](std::int64_t step, const fs::path& directory) {
    check_step(step, read_files(directory)->state.step, directory);
    return step;
  });
}

}  // namespace dtrun::worker
