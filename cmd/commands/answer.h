// Text that the user asked for (help, a plan, a status), to standard output.
#pragma once

#include <string>

namespace dtrun::cmd {

// The exit code. A full disk there is a failure like any other.
int answer(const std::string& text);

}  // namespace dtrun::cmd
