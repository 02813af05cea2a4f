// A script with which a shell completes dtrun's command line.
#pragma once

#include <string>

namespace dtrun::cmd {

// Prints the script and returns the exit code. `source` is the option as typed ("--print_completion=ksh"),
// for messages.
int print_completion(const std::string& shell, const std::string& source);

}  // namespace dtrun::cmd
