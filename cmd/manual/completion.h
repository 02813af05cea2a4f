// Scripts with which a shell completes dtrun's command line, made from the tables of options and subcommands
// and from the config's schema.
#pragma once

#include <string>

#include "cmd/options/command.h"
#include "proto/core/status.h"

namespace dtrun::cmd {

// For bash, zsh, fish or tcsh. EX_USAGE for a shell that there is no script for.
Result<std::string> completion_script(const std::string& shell, Commands commands);

}  // namespace dtrun::cmd
