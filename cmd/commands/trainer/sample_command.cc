#include <charconv>
#include <climits>
#include <string>
#include <utility>
#include <vector>

#include "cmd/commands/answer.h"
#include "cmd/commands/commands.h"
#include "cmd/commands/trainer/become_worker.h"
#include "cmd/options/values.h"

namespace dtrun::cmd {
namespace {

constexpr OptionEntry kOptionsOfSample[] = {
    {.name = "prompt",
     .placeholder = "TEXT",
     .help = "What the text begins with; of a job on tokens without a tokenizer their numbers, with spaces "
             "between them [<|endoftext|>, or a new line]"},
    {.name = "max_new_tokens", .placeholder = "N", .help = "How many tokens follow [256]"},
    {.name = "temperature",
     .placeholder = "X",
     .help = "Below 1 the likelier tokens come more often, above 1 less; 0: always the likeliest [1]"},
    {.name = "top_k", .placeholder = "N", .help = "Choose among so many likeliest tokens; 0: among all [0]"},
    {.name = "top_p",
     .placeholder = "X",
     .help = "Choose among the fewest likeliest tokens whose probabilities add up to this [1]"},
    {.name = "seed", .placeholder = "N", .help = "The same seed writes the same text again [0]"},
    kColorOption,
    kHelpOption};

using SampleOptions = Values<kOptionsOfSample>;

// The number as it was typed, or `otherwise`.
Result<std::string> number(const std::optional<Given>& given, const char* otherwise, double least,
                           double most, bool whole) {
  if (!given) return std::string(otherwise);
  double value = 0;
  const char* const end = given->value.data() + given->value.size();
  const auto [at, error] = std::from_chars(given->value.data(), end, value);
  const bool digits = given->value.find_first_not_of("0123456789") == std::string::npos;
  if (error == std::errc() && at == end && value >= least && value <= most && (digits || !whole))
    return given->value;
  const auto text = [](double bound) { return std::to_string(static_cast<long long>(bound)); };
  return usage(quoted(*given) + ": expected a" + (whole ? " whole" : "") + " number from " + text(least) +
               " to " + text(most));
}

int run_sample(const Invocation& invocation) {
  const SampleOptions options{invocation.values};
  const auto prompt = options.given("prompt");
  std::vector<std::string> words{"sample", invocation.argument, prompt ? prompt->value : ""};
  for (const Result<std::string>& value : {number(options.given("max_new_tokens"), "256", 1, INT_MAX, true),
                                           number(options.given("temperature"), "1", 0, 1e6, false),
                                           number(options.given("top_k"), "0", 0, INT_MAX, true),
                                           number(options.given("top_p"), "1", 0, 1, false),
                                           number(options.given("seed"), "0", 0, 1e18, true)}) {
    if (!value.ok()) return fail(value.status());
    words.push_back(value.value());
  }
  return become_worker(words);
}

}  // namespace

constinit const Command kSampleCommand{
    .name = "sample",
    .summary = "Write text with a trained gpt2",
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
