// Reads checkpoints, and trusts only files that the manifest vouches for.
#include <algorithm>
#include <array>
#include <iterator>

#include "proto/core/text.h"
#include "worker/base/error.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/layout.h"
#include "worker/checkpoint/manifest.h"
#include "worker/checkpoint/published.h"
#include "worker/checkpoint/state_text.h"
#include "worker/config/strict_json.h"

namespace dtrun::worker {

namespace {

namespace fs = std::filesystem;

constexpr char kHead[] = "lm_head.weight";

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
                   .teacher = std::move(text.teacher),
                   .data = std::move(text.data)};
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
  const std::string content = value_or_throw(published_weights(from));
  const Safetensors file = value_in(parse_safetensors(content), from);
  return value_in(parameter_values(file, program, prefix_in(file)), from);
}

namespace {

// The tensors that a model is made of and that nothing takes: those of another function.
std::vector<std::string> unused_tensors(const Safetensors& file, const Program& program,
                                        const std::string& prefix) {
  std::vector<std::string> unused;
  for (const Tensor& tensor : file.tensors) {
    const bool ours = std::ranges::any_of(program.parameters, [&](const Parameter& parameter) {
      return tensor.name == prefix + parameter.name;
    });
    // Counts of steps, masks of older GPT-2s, and a tied head.
    const bool no_weight =
        std::ranges::any_of(std::array{"num_batches_tracked", ".attn.bias", ".attn.masked_bias"},
                            [&](const char* end) { return tensor.name.ends_with(end); });
    if (!ours && !no_weight && tensor.name != kHead) unused.push_back(printable(tensor.name));
  }
  return unused;
}

// Whether a GPT-2's head is its embedding, as ours is.
bool is_tied(const Safetensors& file, const std::string& prefix) {
  const auto head = std::ranges::find(file.tensors, kHead, &Tensor::name);
  const auto embedding = std::ranges::find(file.tensors, prefix + "wte.weight", &Tensor::name);
  if (head == file.tensors.end() || embedding == file.tensors.end()) return true;
  const auto bytes = [&](const Tensor& tensor) {
    return file.data.substr(tensor.offset * sizeof(float), tensor.size * sizeof(float));
  };
  return bytes(*head) == bytes(*embedding);
}

}  // namespace

std::vector<float> load_initial_parameters(const TrainConfig& train, const Program& program,
                                           const Notice& notice) {
  const fs::path from = *train.init_from;
  const std::string where = "/train/init_from: " + from.string();
  const std::string content = value_or_throw(published_weights(from));
  const Safetensors file = value_in(parse_safetensors(content), from);
  const std::string prefix = prefix_in(file);
  if (!is_tied(file, prefix))
    throw WorkerError(kExitConfig,
                      where + ": has a " + kHead +
                          " of its own, and dtrun's GPT-2 computes its outputs with the embedding");
  std::vector<float> flat(program.size);
  initialize_parameters(program, train.seed, flat);
  const std::vector<std::string> faults = take_parameters(file, program, prefix, flat);
  if (faults.size() == program.parameters.size() || (!faults.empty() && !train.ignore_mismatched_sizes))
    throw WorkerError(kExitConfig, where + ": " + join(faults, "; ") +
                                       (faults.size() == program.parameters.size()
                                            ? ": nothing of it fits; it is of another model"
                                            : ": it is of another model, or for other data; to begin such "
                                              "tensors anew, set train.ignore_mismatched_sizes"));
  for (const std::string& fault : faults) notice(where + ": " + fault + ": it begins anew");
  const std::vector<std::string> unused = unused_tensors(file, program, prefix);
  if (!unused.empty())
    notice(where + ": " + std::to_string(unused.size()) + " of its tensors are not used: " +
           join({unused.begin(), unused.begin() + std::min<std::ptrdiff_t>(std::ssize(unused), 5)}, ", ") +
           (unused.size() > 5 ? ", …" : ""));
  return flat;
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
