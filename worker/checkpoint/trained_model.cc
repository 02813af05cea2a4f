#include "worker/checkpoint/trained_model.h"

#include <string>

#include "proto/base/text_in.h"
#include "worker/base/error.h"
#include "worker/checkpoint/places.h"
#include "worker/model/hub.h"

namespace dtrun::worker {
namespace {

namespace fs = std::filesystem;

struct ConfigFile {
  fs::path path;
  std::string text;
  JobConfig job() const { return value_or_throw(parse_config(text, path.string(), {})); }
};
ConfigFile config_of(const fs::path& model) {
  const fs::path path = run_directory_of(model) / "config.json";
  const Result<std::string> text = read_text(path);
  if (text.ok()) return {.path = path, .text = text.value()};
  throw WorkerError(kExitNoInput,
                    model.string() + ": there is no config.json of its job, which says what model it is");
}

// A job's config has no such key.
bool is_hub(const ConfigFile& config) { return config.text.find("\"model_type\"") != std::string::npos; }

ModelConfig model_of(const ConfigFile& config) {
  if (!is_hub(config)) return config.job().model;
  const Result<ModelConfig> gpt2 = gpt2_of_hub(config.text);
  return value_or_throw(gpt2.ok() ? gpt2 : gpt2.status().within(config.path.string()));
}

}  // namespace

TrainedModel trained_model(const fs::path& run) {
  const fs::path model = model_file_of(run);
  return {.file = model, .directory = run_directory_of(model), .config = config_of(model).job()};
}

FoundTeacher find_teacher(const TrainConfig& train, const SampleSpec& sample) try {
  const fs::path file = model_file_of(*train.distill_from);
  FoundTeacher teacher{.file = file, .program = make_program(model_of(config_of(file)), sample)};
  teacher.program.bf16 = train.bf16;
  return teacher;
} catch (const WorkerError& error) {
  throw WorkerError(
      error.exit_code(),
      std::string("/train/distill_from: ") + error.what() +
          "; a teacher takes data of the same shape and classes, and may be a GPT-2 from Hugging Face");
}

Status check_teacher(const TrainConfig& train, const SampleSpec& sample) try {
  if (train.distill_from) find_teacher(train, sample);
  return {};
} catch (const WorkerError& error) {
  return Status(error.exit_code(), error.what());
}

Status check_init(const JobConfig& config) try {
  if (!config.train.init_from) return {};
  const fs::path from = *config.train.init_from;
  const std::string key = "/train/init_from: ";
  std::error_code ignored;
  if (!fs::exists(from, ignored))
    return Status(kExitNoInput, key + from.string() +
                                    " is not there: name a model.safetensors, or a directory that has one on "
                                    "this machine; models of the hub are fetched with `hf download`");
  const fs::path model = fs::is_directory(from, ignored) ? from / "model.safetensors" : from;
  const bool in_run =
      fs::weakly_canonical(model, ignored).parent_path().parent_path().filename() == "checkpoints";
  const fs::path file = (in_run ? run_directory_of(model) : model.parent_path()) / "config.json";
  const Result<std::string> text = read_text(file);
  // Of other programs' configs, and without one, the tensors' shapes must tell.
  if (!text.ok()) return {};
  const ConfigFile found{.path = file, .text = text.value()};
  const ModelConfig& ours = config.model;
  if (is_hub(found) ? ours.type != ModelType::kGpt2 : found.text.find("\"output_dir\"") == std::string::npos)
    return {};
  const ModelConfig theirs = model_of(found);
  const auto differs = [&](const std::string& what, const std::string& there, const std::string& here) {
    return Status(kExitConfig, key + file.string() + ": its " + what + " is " + there +
                                   ", and that of the model to train " + here);
  };
  if (theirs.type != ours.type)
    return Status(kExitConfig, key + file.string() + " is the config of another type of model");
  if (ours.type != ModelType::kGpt2) return {};
  for (const auto& [name, field] : {std::pair{"n_head", &ModelConfig::n_head},
                                    {"n_layer", &ModelConfig::n_layer},
                                    {"n_embd", &ModelConfig::n_embd}})
    if (theirs.*field != ours.*field)
      return differs(name, std::to_string(theirs.*field), std::to_string(ours.*field));
  return {};
} catch (const WorkerError& error) {
  return Status(error.exit_code(), std::string("/train/init_from: ") + error.what());
}

}  // namespace dtrun::worker
