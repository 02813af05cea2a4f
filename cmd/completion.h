// The scripts of --print_completion, with which a shell completes dtrun's options. Pure.
#pragma once

#include <string>

#include "proto/status.h"

namespace dtrun::cmd {

// For "bash", "zsh" or "tcsh"; EX_USAGE for another shell.
Result<std::string> completion_script(const std::string& shell);

}  // namespace dtrun::cmd
