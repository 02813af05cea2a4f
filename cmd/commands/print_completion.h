// How a shell completes dtrun's command line.
#pragma once

#include <string>
#include <vector>

namespace dtrun::cmd {

// Prints the script for `shell` and returns the exit code. `source` is the option as typed
// ("--print_completion=ksh"), for messages.
int print_completion(const std::string& shell, const std::string& source);

// Prints what the last of `words` may become, for a script, and returns the exit code.
int print_candidates(const std::vector<std::string>& words);

}  // namespace dtrun::cmd
