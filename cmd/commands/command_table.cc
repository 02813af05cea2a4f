#include "cmd/commands/command_table.h"

#include "cmd/commands/commands.h"

namespace dtrun::cmd {
namespace {

// In the order in which help names them.
constexpr const Command* kCommands[] = {
    &kAgentCommand,   &kStoreCommand,  &kStatusCommand,  &kDoctorCommand,    &kTraceCommand,
    &kReportCommand,  &kAttachCommand, &kStopCommand,    &kLogsCommand,      &kKubernetesCommand,
    &kSlurmCommand,   &kKeyCommand,    &kPrepareCommand, &kExportCommand,    &kSampleCommand,
    &kProfileCommand, &kGpusCommand,   &kHelpCommand,    &kCompletionCommand};

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
