#include "cmd/commands/answer.h"
#include "cmd/commands/command_table.h"
#include "cmd/commands/commands.h"
#include "cmd/commands/print_completion.h"
#include "cmd/launch/detached_runs.h"
#include "cmd/manual/completion.h"

namespace dtrun::cmd {
namespace {

constexpr OptionEntry kOptionsOfCompletion[] = {kColorOption, kHelpOption};

int run_completion(const Invocation& invocation) {
  return print_completion(invocation.argument, "dtrun completion " + invocation.argument);
}

}  // namespace

int print_completion(const std::string& shell, const std::string& source) {
  const Result<std::string> script = completion_script(shell, commands());
  return script.ok() ? answer(script.value()) : fail(script.status().within(source));
}

int print_candidates(const std::vector<std::string>& words) {
  const auto runs = [] {
    std::vector<std::string> names;
    for (const DetachedRun& run : detached_runs()) names.push_back(run.run_id);
    return names;
  };
  return answer(as_lines(complete(words, commands(), runs)));
}

constinit const Command kCompletionCommand{
    .name = "completion",
    .summary = "Print a script with which a shell completes dtrun's command line",
    .description =
        "To try it: `source <(dtrun completion bash)`, the same with zsh, `dtrun completion fish | source`, "
        "or in tcsh `dtrun completion tcsh > ~/.dtrun.tcsh; source ~/.dtrun.tcsh`. The first lines of each "
        "script say how to keep it. An installed dtrun has brought them for bash, zsh and fish.",
    .argument = "bash|zsh|fish|tcsh",
    .options = kOptionsOfCompletion,
    .rare = true,
    .run = run_completion};

}  // namespace dtrun::cmd
