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
    {.type = ModelType::kResnet, .input = SampleSpec::Input::kValues, .make = resnet},
    {.type = ModelType::kLayers, .input = SampleSpec::Input::kValues, .make = layers},
};
static_assert(std::size(kModels) == kNamesOf<ModelType>.size());

const char* in_words(SampleSpec::Input input) {
  return input == SampleSpec::Input::kTokens ? "tokens" : "values, such as images";
}

// The smallest microbatch of an epoch: the last of a whole step, or of the last step.
std::int64_t smallest_group(const TrainConfig& train, std::int64_t samples, bool drop_last) {
  // Samples that are normalised together.
  const std::int64_t together = train.batch_norm_group == 0
                                    ? train.global_batch_size
                                    : std::int64_t{train.batch_norm_group} * train.micro_batch_size;
  const auto last_of = [&](std::int64_t batch) { return (batch - 1) % together + 1; };
  const std::int64_t whole = last_of(std::min<std::int64_t>(train.global_batch_size, samples));
  const std::int64_t rest = samples % train.global_batch_size;
  return rest == 0 || drop_last ? whole : std::min(whole, last_of(rest));
}

}  // namespace

std::string too_few_values(const Program& program, const TrainConfig& train, std::int64_t samples) {
  if (smallest_group(train, samples, train.dataloader_drop_last) > 1) return "";
  for (const Node& node : program.nodes) {
    const auto* const norm = std::get_if<BatchNorm>(&node.op);
    if (norm == nullptr || program.values[node.in[0]].size() > static_cast<std::size_t>(norm->channels))
      continue;
    return program.parameters[norm->weight].name + ": its batch norm would get one value a channel, from " +
           (train.batch_norm_group == 1 ? "a microbatch" : "microbatches") +
           " of one sample, and one value has no variance; choose another train.micro_batch_size or "
           "train.global_batch_size, which leave no "
           "sample "
           "alone" +
           (smallest_group(train, samples, true) > 1 ? ", or train.dataloader_drop_last=true" : "");
  }
  return "";
}

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
  program.quantize_aware = config.train.quantize_aware;
  return program;
}

}  // namespace dtrun::worker
