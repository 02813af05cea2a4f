// What --print_completion prints: a script with which bash, zsh or tcsh completes dtrun's command line, made
// from the option table and the config's schema.
#pragma once

#include <string>

#include "proto/core/status.h"

namespace dtrun::cmd {

// EX_USAGE for a shell that there is no script for.
Result<std::string> completion_script(const std::string& shell);

}  // namespace dtrun::cmd
