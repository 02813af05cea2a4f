#include "cmd/commands/command_table.h"

#include "cmd/commands/agent_command.h"
#include "cmd/commands/completion_command.h"
#include "cmd/commands/detached_commands.h"
#include "cmd/commands/export_command.h"
#include "cmd/commands/gpus_command.h"
#include "cmd/commands/help_command.h"
#include "cmd/commands/key_command.h"
#include "cmd/commands/kubernetes_command.h"
#include "cmd/commands/prepare_command.h"
#include "cmd/commands/profile_command.h"
#include "cmd/commands/sample_command.h"
#include "cmd/commands/slurm_command.h"
#include "cmd/commands/status_command.h"
#include "cmd/commands/store_command.h"

namespace dtrun::cmd {
namespace {

// In the order in which help names them.
constexpr const Command* kCommands[] = {
    &kAgentCommand,   &kStoreCommand,   &kStatusCommand,     &kAttachCommand,
    &kStopCommand,    &kLogsCommand,    &kKubernetesCommand, &kSlurmCommand,
    &kKeyCommand,     &kPrepareCommand, &kExportCommand,     &kSampleCommand,
    &kProfileCommand, &kGpusCommand,    &kHelpCommand,       &kCompletionCommand};

}  // namespace

Commands commands() { return kCommands; }

const Command* find_command(const std::string& name) {
  for (const Command* command : kCommands)
    if (name == command->name) return command;
  return nullptr;
}

std::vector<std::string> command_names() {
  std::vector<std::string> names;
  for (const Command* command : kCommands) names.emplace_back(command->name);
  return names;
}

}  // namespace dtrun::cmd
