#include <climits>
#include <cstdlib>
#include <optional>

#include "cmd/commands/answer.h"
#include "cmd/commands/commands.h"
#include "cmd/commands/trainer/become_worker.h"
#include "cmd/options/values.h"
#include "cmd/plan/one_worker.h"
#include "worker/config/tool_request.h"

namespace dtrun::cmd {
namespace {

constexpr OptionEntry kOptionsOfProfile[] = {
    {.name = "lanes", .placeholder = "N", .help = "Lanes that compute at once [1]"},
    {.name = "steps", .placeholder = "N", .help = "Steps to measure [as many as take two seconds]"},
    {.name = "json", .help = "One JSON object instead of a table"},
    kColorOption,
    kHelpOption};

using ProfileOptions = Values<kOptionsOfProfile>;

Result<int> parse_from_one(const Given& given) {
  return parse_count(given, INT_MAX, "a whole number from 1 on");
}

// The number of a GPU; nothing: the CPU.
Status read_device(const std::optional<Given>& lanes, worker::ProfileRequest* request) {
  ASSIGN_OR_RETURN(const DeviceChoice choice,
                   device_of_one_worker(request->config, request->words, this_machine()));
  notice("device: " + choice.why);
  if (choice.gpus.empty()) return {};
  if (lanes) notice(quoted(*lanes) + " has no effect: a worker with a GPU has one lane");
  // So that the worker counts GPUs as we do.
  setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
  request->gpu = choice.gpus[0].index;
  return {};
}

int run_profile(const Invocation& invocation) {
  const ProfileOptions options{invocation.values};
  worker::ProfileRequest request{
      .config = invocation.argument, .json = options.flag("json"), .words = invocation.from_second_on()};
  Status status = read_given(options.given("lanes"), &request.lanes, parse_from_one);
  if (status.ok()) status = read_given(options.given("steps"), &request.steps, parse_from_one);
  for (const std::string& word : request.words)
    if (word.starts_with("train.max_steps="))
      notice(word + " has no effect: --steps says how many steps are measured");
  if (status.ok()) status = read_device(options.given("lanes"), &request);
  return status.ok() ? become_worker(worker::arguments_of(request)) : fail(status);
}

}  // namespace

constinit const Command kProfileCommand{
    .name = "profile",
    .summary = "Show where the time of a job's steps goes",
    .description =
        "Trains the job of CONFIG.json for a moment, alone and from its initial values, and measures each "
        "operation of the model: its time in a step, its rate, and how near that is to what this machine can "
        "do at best, which is measured too. KEY=VALUE overrides an entry of the config, as when it is run. "
        "Nothing is written to the job's output_dir.\n\nA matmul's ceiling is the rate of matmuls "
        "of a size that suits the caches (a large one on a GPU), in the job's number format; that of all "
        "other work is the rate at which memory can be read and written. More than 100 % means that caches "
        "were faster. A step is also measured as it is run, without timing each operation (on a GPU with "
        "CUDA graphs). What workers wait for each other is not in it: a running job writes that to "
        "metrics.jsonl.",
    .argument = "CONFIG.json",
    .second = "[KEY=VALUE]",
    .second_repeats = true,
    .options = kOptionsOfProfile,
    .rare = true,
    .run = run_profile};

}  // namespace dtrun::cmd
