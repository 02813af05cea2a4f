#include "worker/model/models.h"

#include <algorithm>
#include <iterator>

#include "worker/base/error.h"

namespace dtrun::worker {
namespace {

struct Model {
  ModelType type;
  SampleSpec::Input input;
  Program (*make)(const ModelConfig&, const SampleSpec&);
};

constexpr Model kModels[] = {
    {.type = ModelType::kConvnet, .input = SampleSpec::Input::kValues, .make = convnet},
    {.type = ModelType::kMlp, .input = SampleSpec::Input::kValues, .make = mlp},
    {.type = ModelType::kGpt2, .input = SampleSpec::Input::kTokens, .make = gpt2},
    {.type = ModelType::kLayers, .input = SampleSpec::Input::kValues, .make = layers},
};
static_assert(std::size(kModels) == kNamesOf<ModelType>.size());

const char* in_words(SampleSpec::Input input) {
  return input == SampleSpec::Input::kTokens ? "tokens" : "values, such as images";
}

}  // namespace

Program make_program(const ModelConfig& config, const SampleSpec& sample) {
  if (sample.classes < 2)
    throw WorkerError(
        kExitConfig, "the data has " + std::to_string(sample.classes) + " class(es); a classifier needs two");
  const auto* model = std::ranges::find(kModels, config.type, &Model::type);
  if (model->input != sample.input)
    throw WorkerError(kExitConfig, "the data does not fit the model: " + name_of(config.type) + " takes " +
                                       in_words(model->input) + ", and the data has " +
                                       in_words(sample.input) + "; choose other data or another model");
  Program program = model->make(config, sample);
  program.model = name_of(config.type);
  return program;
}

Program make_program(const JobConfig& config, const SampleSpec& sample, std::string input_values) {
  Program program = make_program(config.model, sample);
  program.input_values = std::move(input_values);
  program.label_smoothing = static_cast<float>(config.train.label_smoothing_factor);
  program.bf16 = config.train.bf16;
  return program;
}

}  // namespace dtrun::worker
