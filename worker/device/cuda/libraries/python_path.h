// Where the machine's Python looks for packages.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace dtrun::worker::cuda {

// sys.path of `python`, a program that is looked for on PATH. It is asked, not guessed: of a virtual
// environment, pyenv, conda or Debian only Python itself knows where its packages are. Empty if there is
// none, it fails or it takes longer than `limit`, after which it is killed.
std::vector<std::string> python_path(const std::string& python, std::chrono::milliseconds limit);

}  // namespace dtrun::worker::cuda
