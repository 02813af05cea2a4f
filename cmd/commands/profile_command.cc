#include "cmd/commands/profile_command.h"

#include <climits>
#include <string>
#include <vector>

#include "cmd/commands/answer.h"
#include "cmd/commands/become_worker.h"
#include "cmd/options/values.h"

namespace dtrun::cmd {
namespace {

constexpr OptionEntry kOptionsOfProfile[] = {
    {.name = "lanes", .placeholder = "N", .help = "Lanes that compute at the same time [1]"},
    {.name = "steps", .placeholder = "N", .help = "Steps to measure [as many as take two seconds]"},
    {.name = "json", .help = "One JSON object instead of a table"},
    {.name = "trace",
     .placeholder = "FILE",
     .help = "Write what each lane did when, as chrome://tracing and ui.perfetto.dev show it"},
    kColorOption,
    kHelpOption};

using ProfileOptions = Values<kOptionsOfProfile>;

// The count as it was typed, or `otherwise`.
Result<std::string> count(const std::optional<Given>& given, const char* otherwise) {
  if (!given) return std::string(otherwise);
  const Result<int> value = parse_count(*given, INT_MAX, "a whole number from 1 on");
  return value.ok() ? Result<std::string>(std::to_string(value.value())) : value.status();
}

int run_profile(const Invocation& invocation) {
  const ProfileOptions options{invocation.values};
  const Result<std::string> lanes = count(options.given("lanes"), "1");
  if (!lanes.ok()) return fail(lanes.status());
  const Result<std::string> steps = count(options.given("steps"), "0");
  if (!steps.ok()) return fail(steps.status());
  const auto trace = options.given("trace");
  std::vector<std::string> words{"profile",
                                 invocation.argument,
                                 lanes.value(),
                                 steps.value(),
                                 options.given("json") ? "json" : "table",
                                 trace ? trace->value : ""};
  if (!invocation.second.empty()) words.push_back(invocation.second);
  words.insert(words.end(), invocation.more.begin(), invocation.more.end());
  return become_worker(words);
}

}  // namespace

constinit const Command kProfileCommand{
    .name = "profile",
    .summary = "Show where the time of a job's steps goes",
    .description =
        "Trains the job of CONFIG.json for a moment, alone and from its initial values, and measures each "
        "operation of the model: its time in a step, its rate, and how near that is to what this machine can "
        "do at best, which is measured too. KEY=VALUE overrides an entry of the config, as when it is run. "
        "Nothing is written to the job's output_dir.\n\nA product's ceiling is the rate of matrix products "
        "of "
        "a size that suits the caches, in the job's number format; that of all other work is the rate at "
        "which "
        "memory can be read and written. More than 100 % means that caches were faster. What workers wait "
        "for "
        "each other is not in it: a running job writes that to metrics.jsonl.",
    .argument = "CONFIG.json",
    .second = "[KEY=VALUE]",
    .second_repeats = true,
    .options = kOptionsOfProfile,
    .rare = true,
    .run = run_profile};

}  // namespace dtrun::cmd
