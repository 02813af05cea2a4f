#include <climits>
#include <cstdlib>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cmd/commands/answer.h"
#include "cmd/commands/commands.h"
#include "cmd/commands/trainer/become_worker.h"
#include "cmd/options/values.h"
#include "cmd/plan/one_worker.h"

namespace dtrun::cmd {
namespace {

constexpr OptionEntry kOptionsOfProfile[] = {
    {.name = "lanes", .placeholder = "N", .help = "Lanes that compute at the same time [1]"},
    {.name = "steps", .placeholder = "N", .help = "Steps to measure [as many as take two seconds]"},
    {.name = "json", .help = "One JSON object instead of a table"},
    {.name = "trace",
     .placeholder = "FILE",
     .help = "Write what each lane or stream did when, as chrome://tracing and ui.perfetto.dev show it"},
    kColorOption,
    kHelpOption};

using ProfileOptions = Values<kOptionsOfProfile>;

// The count as it was typed, or `otherwise`.
Result<std::string> count(const std::optional<Given>& given, const char* otherwise) {
  if (!given) return std::string(otherwise);
  const Result<int> value = parse_count(*given, INT_MAX, "a whole number from 1 on");
  return value.ok() ? Result<std::string>(std::to_string(value.value())) : value.status();
}

// The worker's word for it: the number of a GPU, or nothing for the CPU.
Result<std::string> device_of(const std::string& config, std::span<const std::string> overrides,
                              const std::optional<Given>& lanes) {
  const Result<DeviceChoice> choice = device_of_one_worker(config, overrides, this_machine());
  if (!choice.ok()) return choice.status();
  notice("device: " + choice.value().why);
  if (choice.value().gpus.empty()) return std::string();
  if (lanes) notice(quoted(*lanes) + " has no effect: a worker with a GPU has one lane");
  // So that the worker counts GPUs as we do.
  setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
  return std::to_string(choice.value().gpus[0].index);
}

int run_profile(const Invocation& invocation) {
  const ProfileOptions options{invocation.values};
  const Result<std::string> lanes = count(options.given("lanes"), "1");
  if (!lanes.ok()) return fail(lanes.status());
  const Result<std::string> steps = count(options.given("steps"), "0");
  if (!steps.ok()) return fail(steps.status());
  const auto trace = options.given("trace");
  const std::vector<std::string> overrides = invocation.from_second_on();
  const Result<std::string> device = device_of(invocation.argument, overrides, options.given("lanes"));
  if (!device.ok()) return fail(device.status());
  std::vector<std::string> words{"profile",
                                 invocation.argument,
                                 lanes.value(),
                                 steps.value(),
                                 options.given("json") ? "json" : "table",
                                 trace ? trace->value : "",
                                 device.value()};
  words.insert(words.end(), overrides.begin(), overrides.end());
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
        "of a size that suits the caches (a large one on a GPU), in the job's number format; that of all "
        "other work is the rate at which memory can be read and written. More than 100 % means that caches "
        "were faster. On a GPU each kernel is timed on its stream; a step is also measured as it is run, "
        "with CUDA graphs. What workers wait for each other is not in it: a running job writes that to "
        "metrics.jsonl.",
    .argument = "CONFIG.json",
    .second = "[KEY=VALUE]",
    .second_repeats = true,
    .options = kOptionsOfProfile,
    .rare = true,
    .run = run_profile};

}  // namespace dtrun::cmd
