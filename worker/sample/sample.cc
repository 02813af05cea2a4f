#include "worker/sample/sample.h"

#include <cstdio>
#include <filesystem>

#include "worker/base/error.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/trained_model.h"
#include "worker/config/config.h"
#include "worker/core/choose_token.h"
#include "worker/core/philox.h"
#include "worker/data/data_tokenizer.h"
#include "worker/device/cpu/planned/generator.h"
#include "worker/sample/script.h"

namespace dtrun::worker {
namespace {

namespace fs = std::filesystem;

// The run's own copy of the tokenizer, or else that of its data: an older run may have no copy.
std::shared_ptr<const Tokenizer> tokenizer_of_run(const fs::path& directory, DataConfig data) {
  if (data.type == DataType::kText && !data.tokenizer) return nullptr;  // bytes
  if (has_tokenizer(directory)) data.tokenizer = directory.string();
  const auto loaded = value_or_throw(tokenizer_of(data));
  return loaded ? loaded->tokenizer : nullptr;
}

void write_text(const SampleRequest& request) {
  const auto [model, directory, config] = trained_model(request.run);
  if (config.model.type != ModelType::kGpt2)
    throw WorkerError(kExitConfig, model.string() + ": a \"" + name_of(config.model.type) +
                                       "\" writes no text; a \"gpt2\" does");
  const std::unique_ptr<Script> script = make_script(config.data, tokenizer_of_run(directory, config.data));
  const int longest = config.model.n_positions;
  const Program program = make_program(config.model, {.input = SampleSpec::Input::kTokens,
                                                      .shape = {1, 1, longest},
                                                      .targets = longest,
                                                      .classes = script->classes()});
  Generator generator(program, load_parameters(model, program));
  std::vector<std::int32_t> text = script->read(request.prompt);
  const auto write = [](const std::string& shown) {
    std::fwrite(shown.data(), 1, shown.size(), stdout);
    // False if the output is closed.
    return std::fflush(stdout) == 0;
  };
  if (text.empty()) text.push_back(script->first());
  for (const std::int32_t token : text) write(script->shown(token));
  const Sampling sampling{.temperature = request.temperature, .top_k = request.top_k, .top_p = request.top_p};
  const RandomStream random(request.seed, RandomUse::kSample, 0, 0);

  // A model reads so many tokens at most; a text that has grown beyond them goes on from its second half.
  std::size_t taken_in = text.size() - std::min<std::size_t>(text.size(), longest);
  if (taken_in > 0)
    std::fprintf(stderr,
                 "dtrun: the prompt has %zu tokens, and the model reads %d: the first %zu are left out\n",
                 text.size(), longest, taken_in);
  for (int i = 0; i < request.max_new_tokens; ++i) {
    if (generator.size() == longest) {
      generator.clear();
      taken_in = text.size() - (longest - longest / 2);
    }
    std::span<const float> logits;
    while (taken_in < text.size() && generator.size() < longest) logits = generator.next(text[taken_in++]);
    // A model may have more classes than there are tokens.
    const auto choices = logits.first(std::min<std::size_t>(logits.size(), script->choices()));
    text.push_back(choose_token(choices, sampling, random.uniform(static_cast<std::uint64_t>(i))));
    if (!write(script->shown(text.back()))) throw WorkerError(kExitIo, "cannot write the text");
  }
  write(script->rest() + "\n");
}

}  // namespace

int sample_main(const SampleRequest& request) {
  try {
    write_text(request);
    return std::fflush(stdout) == 0 ? kExitOk : kExitIo;
  } catch (const WorkerError& error) {
    std::fprintf(stderr, "dtrun: %s\n", error.what());
    return error.exit_code();
  }
}

}  // namespace dtrun::worker
