// `dtrun completion`: a script with which a shell completes dtrun's command line.
#pragma once

#include <string>

#include "cmd/options/command.h"

namespace dtrun::cmd {

extern const Command kCompletionCommand;

// Prints the script and returns the exit code. `source` is the option as typed ("--print_completion=ksh"),
// for messages.
int print_completion(const std::string& shell, const std::string& source);

}  // namespace dtrun::cmd
