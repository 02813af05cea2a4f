#include <filesystem>
#include <string>

#include "cmd/commands/answer.h"
#include "cmd/commands/commands.h"
#include "cmd/commands/job_file_options.h"
#include "cmd/job_files/slurm.h"
#include "cmd/options/values.h"
#include "cmd/plan/config_file.h"

namespace dtrun::cmd {
namespace {

constexpr OptionEntry kOptionsOfSlurm[] = {
    kNodesOption,
    {.name = "gpus", .placeholder = "N", .help = "GPUs per node, with a worker for each [0]"},
    {.name = "time", .placeholder = "TIME", .help = "Time limit, as for sbatch [the partition's]"},
    {.name = "partition", .placeholder = "NAME", .help = "Partition [the cluster's default]"},
    kRestartsOption,
    kColorOption,
    kHelpOption};

using SlurmOptions = Values<kOptionsOfSlurm>;

int run_slurm(const Invocation& invocation) {
  const SlurmOptions options{invocation.values};
  const std::vector<std::string> overrides = invocation.from_second_on();
  const Result<ConfigFile> file = read_job_config(invocation.argument, overrides);
  if (!file.ok()) return fail(file.status());
  const worker::LaunchConfig& launch = file.value().config.launch;
  SlurmJob job{.name = std::filesystem::path(invocation.argument).stem(),
               .time = value_of(options.given("time"), ""),
               .partition = value_of(options.given("partition"), ""),
               .config = std::filesystem::absolute(invocation.argument),
               .overrides = overrides};
  const Result<NodeCount> nodes = nodes_of(options.given("nnodes"), launch);
  if (!nodes.ok()) return fail(nodes.status());
  job.nodes = nodes.value();
  const Result<int> restarts = restarts_of(options.given("max_restarts"), launch);
  if (!restarts.ok()) return fail(restarts.status());
  job.max_restarts = restarts.value();
  if (const auto time = options.given("time"); time && !is_slurm_time(time->value))
    return fail(usage(quoted(*time) +
                      ": expected a time as sbatch has it: MINUTES, MINUTES:SECONDS, HOURS:MINUTES:SECONDS, "
                      "DAYS-HOURS, DAYS-HOURS:MINUTES or DAYS-HOURS:MINUTES:SECONDS"));
  const Status status = read_number(options.given("gpus"), &job.gpus);
  return status.ok() ? answer(slurm_script(job)) : fail(status);
}

}  // namespace

constinit const Command kSlurmCommand{
    .name = "slurm",
    .summary = "Write a script that runs a job under Slurm, for sbatch",
    .description =
        "Prints a batch script that takes whole nodes and starts one agent on each with srun; nodes, ranks "
        "and "
        "the coordinator are what Slurm says. A job that is preempted or out of time writes a checkpoint and "
        "is "
        "queued again.\n\n"
        "  dtrun slurm --nnodes 4 --gpus 8 CONFIG.json > job.sbatch; sbatch job.sbatch\n\n"
        "In an allocation that you have, `srun dtrun CONFIG.json` is all: docs/slurm.md.",
    .argument = "CONFIG.json",
    .second = "[KEY=VALUE]",
    .second_repeats = true,
    .options = kOptionsOfSlurm,
    .rare = true,
    .run = run_slurm};

}  // namespace dtrun::cmd
