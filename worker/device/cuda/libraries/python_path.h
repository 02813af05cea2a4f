// The folders in which the machine's Python looks for packages.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace dtrun::worker::cuda {

// sys.path of `python`, a program that is looked for on PATH. Runs Python, since with a virtual environment,
// pyenv, conda or Debian only Python itself knows the folders of its packages. Empty if there is no Python,
// if it fails, or if it takes longer than `limit`, after which it is killed.
std::vector<std::string> python_path(const std::string& python, std::chrono::milliseconds limit);

}  // namespace dtrun::worker::cuda
