// The pages of dtrun's manual, made from the tables that the program itself reads: the launcher's options,
// the subcommands, the config's keys.
#pragma once

#include <string>
#include <vector>

#include "cmd/manual/page.h"
#include "cmd/options/command.h"

namespace dtrun::cmd {

enum class Detail {
  kShort,      // one screen of 80 columns and 24 lines
  kLong,       // all of the command's own options
  kReference,  // those of the subcommands as well
};

Page launcher_page(Commands commands, Detail detail);
Page command_page(const Command& command, Detail detail);
Page config_page();

// "dtrun 0.1.0"
std::string version();

// An option's help up to its first "; ", ". " or " [".
std::string first_clause(const OptionEntry& option);

// The words that a placeholder such as "N|auto|cpu|gpu" names literally; COMMAND stands for all command
// names.
std::vector<std::string> choices(const std::string& placeholder, Commands commands);

}  // namespace dtrun::cmd
