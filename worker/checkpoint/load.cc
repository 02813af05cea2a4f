// Reads checkpoints, and trusts only files that the manifest vouches for.
#include <algorithm>

#include "worker/base/error.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/layout.h"
#include "worker/checkpoint/manifest.h"
#include "worker/checkpoint/state_text.h"

namespace dtrun::worker {

namespace {

namespace fs = std::filesystem;

// As value_or_throw(); the error's message begins with `path`.
template <typename T>
T value_in(Result<T> result, const fs::path& path) {
  return value_or_throw(result.ok() ? std::move(result) : Result<T>(result.status().within(path.string())));
}

// A checkpoint's files, each verified when it is read. They are read one after the other and freed at once:
// together they would take as much memory as the state.
class Files {
 public:
  explicit Files(fs::path directory) : directory_(std::move(directory)) {
    std::error_code error;
    if (!fs::is_directory(directory_, error)) {
      throw WorkerError(kExitNoInput,
                        directory_.string() +
                            ": there is no such checkpoint directory; name one such as "
                            "OUTPUT_DIR/checkpoints/step-00000500, or use \"auto\" or \"none\"");
    }
    const fs::path path = directory_ / kManifestFile;
    manifest_ = value_in(parse_manifest(value_or_throw(read_whole(path))), path);
  }

  StateText state() const {
    const std::string text = value_or_throw(read_verified(directory_, kStateFile, manifest_));
    return value_in(parse_state(text), directory_ / kStateFile);
  }
  // The result of `values` for one of the files with tensors.
  template <typename Values>
  auto tensors(const char* name, const Values& values) const {
    const std::string content = value_or_throw(read_verified(directory_, name, manifest_));
    const Safetensors parsed = value_in(parse_safetensors(content), directory_ / name);
    return value_in(values(parsed), directory_ / name);
  }
  void verify_tensors() const {
    for (const char* name : {kModelFile, kOptimizerFile})
      tensors(name, [](const Safetensors&) { return Result<bool>(true); });
  }

 private:
  const fs::path directory_;
  Manifest manifest_;
};

// The newest checkpoint that is not damaged. A checkpoint of another model is not damaged: the exception of
// `load` for it is passed on.
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
  const Files files(directory);
  StateText text = files.state();
  TrainState state{.step = text.step,
                   .parameters = {},
                   .optimizer = {},
                   .config_json = std::move(text.config_json),
                   .evaluations = text.evaluations,
                   .device = std::move(text.device),
                   .teacher = std::move(text.teacher)};
  state.parameters =
      files.tensors(kModelFile, [&](const Safetensors& file) { return model_values(file, program); });
  state.optimizer =
      files.tensors(kOptimizerFile, [&](const Safetensors& file) { return optimizer_values(file, program); });
  return state;
}

std::vector<float> load_parameters_of_step(const fs::path& directory, const Program& program,
                                           std::int64_t step) {
  const Files files(directory);
  check_step(step, files.state().step, directory);
  return files.tensors(kModelFile, [&](const Safetensors& file) { return model_values(file, program); });
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
  const Safetensors file = value_in(parse_safetensors(content), path);
  return value_in(parameter_values(file, program, prefix_in(file)), path);
}

bool has_checkpoints(const fs::path& output_dir) { return !list_checkpoints(output_dir).empty(); }

std::optional<std::int64_t> newest_step(const fs::path& output_dir, const Notice& notice) {
  return newest(output_dir, notice, [](std::int64_t step, const fs::path& directory) {
    const Files files(directory);
    check_step(step, files.state().step, directory);
    files.verify_tensors();
    return step;
  });
}

}  // namespace dtrun::worker
