#include <climits>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>

#include "cmd/commands/answer.h"
#include "cmd/commands/commands.h"
#include "cmd/commands/trainer/become_worker.h"
#include "cmd/options/values.h"
#include "proto/core/number.h"
#include "worker/config/tool_request.h"

namespace dtrun::cmd {
namespace {

constexpr OptionEntry kOptionsOfSample[] = {
    {.name = "prompt",
     .placeholder = "TEXT",
     .help = "Beginning of the text; for a job on tokens without a tokenizer, token numbers separated by "
             "spaces [<|endoftext|>, or a new line]"},
    {.name = "max_new_tokens", .placeholder = "N", .help = "Tokens to generate [256]"},
    {.name = "temperature",
     .placeholder = "X",
     .help = "Sampling temperature: below 1 favours likelier tokens; 0: always the likeliest [1]"},
    {.name = "top_k", .placeholder = "N", .help = "Sample from the N likeliest tokens; 0: from all [0]"},
    {.name = "top_p",
     .placeholder = "X",
     .help = "Sample from the fewest likeliest tokens whose probabilities sum to X [1]"},
    {.name = "seed", .placeholder = "N", .help = "Random seed; a seed gives one text [0]"},
    kColorOption,
    kHelpOption};

using SampleOptions = Values<kOptionsOfSample>;

template <typename Number>
Status read_number(const std::optional<Given>& given, Number* number, Number least, Number most) {
  return read_given(given, number, [=](const Given& typed) -> Result<Number> {
    const auto value = parse_number<Number>(typed.value);
    if (value && *value >= least && *value <= most) return *value;
    const auto text = [](Number bound) { return std::to_string(static_cast<long long>(bound)); };
    return usage(quoted(typed) + ": expected a" + (std::is_integral_v<Number> ? " whole" : "") +
                 " number from " + text(least) + " to " + text(most));
  });
}

int run_sample(const Invocation& invocation) {
  constexpr std::uint64_t kLargestSeed = 1'000'000'000'000'000'000;
  const SampleOptions options{invocation.values};
  worker::SampleRequest request{.run = invocation.argument};
  if (const auto prompt = options.given("prompt")) request.prompt = prompt->value;
  Status status = read_number(options.given("max_new_tokens"), &request.max_new_tokens, 1, INT_MAX);
  if (status.ok()) status = read_number(options.given("temperature"), &request.temperature, 0.0, 1e6);
  if (status.ok()) status = read_number(options.given("top_k"), &request.top_k, 0, INT_MAX);
  if (status.ok()) status = read_number(options.given("top_p"), &request.top_p, 0.0, 1.0);
  if (status.ok()) status = read_number(options.given("seed"), &request.seed, std::uint64_t{0}, kLargestSeed);
  return status.ok() ? become_worker(worker::arguments_of(request)) : fail(status);
}

}  // namespace

constinit const Command kSampleCommand{
    .name = "sample",
    .summary = "Generate text with a trained gpt2",
    .description =
        "RUN is the output_dir of a job that trains a gpt2, or one of its checkpoints; of a job that has not "
        "ended "
        "the newest checkpoint is taken. The text appears as it is written. A text longer than the model's "
        "n_positions goes on from the second half of what it has read.",
    .argument = "RUN",
    .options = kOptionsOfSample,
    .rare = true,
    .run = run_sample};

}  // namespace dtrun::cmd
