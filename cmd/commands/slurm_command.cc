#include <filesystem>
#include <string>

#include "cmd/commands/answer.h"
#include "cmd/commands/commands.h"
#include "cmd/commands/job_file_options.h"
#include "cmd/job_files/slurm.h"
#include "cmd/options/values.h"

namespace dtrun::cmd {
namespace {

constexpr OptionEntry kOwnOptionsOfSlurm[] = {
    kNodesOption,
    {.name = "gpus", .placeholder = "N", .help = "GPUs per node, with a worker for each [0]"},
    {.name = "time", .placeholder = "TIME", .help = "Time limit, as for sbatch [the partition's]"},
    {.name = "partition", .placeholder = "NAME", .help = "Partition [the cluster's default]"},
    kRestartsOption,
    kColorOption,
    kHelpOption};
constexpr auto kOptionsOfSlurm = with_those_of_jobs<kOwnOptionsOfSlurm>();

using SlurmOptions = Values<kOptionsOfSlurm>;

int run_slurm(const Invocation& invocation) {
  const SlurmOptions options{invocation.values};
  const Result<JobProgram> program = read_job(invocation, kOwnOptionsOfSlurm);
  if (!program.ok()) return fail(program.status());
  const worker::LaunchConfig launch = program.value().launch();
  SlurmJob job{.name = std::filesystem::path(invocation.argument).stem(),
               .time = value_of(options.given("time"), ""),
               .partition = value_of(options.given("partition"), ""),
               .options = program.value().options,
               .words = program.value().words};
  // Slurm starts the job in the directory where sbatch was typed.
  if (program.value().text)
    job.words.insert(job.words.begin(), std::filesystem::absolute(invocation.argument).string());
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
  if (const auto partition = options.given("partition"); partition && !is_slurm_word(partition->value))
    return fail(usage(quoted(*partition) + ": expected names of partitions, with commas between them"));
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
        "queued again. Options of dtrun, such as --log_dir and --recovery, are those of the job's dtrun.\n\n"
        "  dtrun slurm --nnodes 4 --gpus 8 CONFIG.json > job.sbatch; sbatch job.sbatch\n\n"
        "In an allocation that you have, `srun dtrun CONFIG.json` is all: docs/slurm.md.",
    .argument = "CONFIG.json",
    .second = "[KEY=VALUE]",
    .second_repeats = true,
    .takes_job = true,
    .options = kOptionsOfSlurm,
    .rare = true,
    .run = run_slurm};

}  // namespace dtrun::cmd
