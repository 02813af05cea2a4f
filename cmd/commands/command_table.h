// dtrun's subcommands: to add one, write its file, and name its Command in commands.h and in the list.
#pragma once

#include <string>
#include <vector>

#include "cmd/options/command.h"

namespace dtrun::cmd {

Commands commands();

// The command of this name; null if there is none.
const Command* find_command(const std::string& name);

std::vector<std::string> command_names();

}  // namespace dtrun::cmd
