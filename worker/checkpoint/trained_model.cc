#include "worker/checkpoint/trained_model.h"

#include <string>

#include "proto/base/text_in.h"
#include "worker/base/error.h"
#include "worker/checkpoint/places.h"

namespace dtrun::worker {
namespace {

namespace fs = std::filesystem;

JobConfig config_in(const fs::path& directory, const fs::path& model) {
  const fs::path path = directory / "config.json";
  const Result<std::string> text = read_text(path);
  if (!text.ok())
    throw WorkerError(kExitNoInput,
                      model.string() + ": there is no config.json of its job, which says what model it is");
  return value_or_throw(parse_config(text.value(), path.string(), {}));
}

}  // namespace

TrainedModel trained_model(const fs::path& run) {
  const fs::path model = model_file_of(run);
  const fs::path directory = run_directory_of(model);
  return {.file = model, .directory = directory, .config = config_in(directory, model)};
}

FoundTeacher find_teacher(const TrainConfig& train, const SampleSpec& sample) try {
  const TrainedModel found = trained_model(*train.distill_from);
  FoundTeacher teacher{.file = found.file, .program = make_program(found.config.model, sample)};
  teacher.program.bf16 = train.bf16;
  return teacher;
} catch (const WorkerError& error) {
  throw WorkerError(error.exit_code(), std::string("/train/distill_from: ") + error.what() +
                                           "; name the output_dir of a job, or a checkpoint, whose model was "
                                           "trained on data of the same shape and classes");
}

Status check_teacher(const TrainConfig& train, const SampleSpec& sample) try {
  if (train.distill_from) find_teacher(train, sample);
  return {};
} catch (const WorkerError& error) {
  return Status(error.exit_code(), error.what());
}

}  // namespace dtrun::worker
