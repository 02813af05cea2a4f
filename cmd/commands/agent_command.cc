#include <unistd.h>

#include "cmd/commands/answer.h"
#include "cmd/commands/commands.h"
#include "cmd/launch/host_agent.h"
#include "cmd/options/values.h"

namespace dtrun::cmd {
namespace {

int run_agent(const Invocation& invocation) {
  if (isatty(STDIN_FILENO) == 0) return run_host_agent(invocation.times);
  return fail(
      usage("this is what `dtrun --hostfile FILE …` starts on each host; its words come on standard input"));
}

constexpr OptionEntry kOptionsOfAgent[] = {kHelpOption};

}  // namespace

constinit const Command kAgentCommand{
    .name = "agent",
    .summary = "One host's part of a job that `dtrun --hostfile` starts",
    .description =
        "Started over ssh or --ssh's remote shell: reads the job's command line, directory, "
        "environment and key from standard input and sends the workers' output back. Nobody types "
        "it.",
    .options = kOptionsOfAgent,
    .rare = true,
    .run = run_agent};

}  // namespace dtrun::cmd
