#include "worker/device/cuda/libraries/python_path.h"

#include <sys/wait.h>

#include <sstream>

#include "proto/base/answer.h"

namespace dtrun::worker::cuda {

std::vector<std::string> python_path(const std::string& python, std::chrono::milliseconds limit) {
  constexpr char kProgram[] = "import sys; print(*filter(None, sys.path), sep='\\n')";
  const CommandAnswer answer = answer_of({python, "-c", kProgram}, "", limit);
  const bool good =
      answer.end == CommandAnswer::kAnswered && WIFEXITED(answer.status) && WEXITSTATUS(answer.status) == 0;
  std::vector<std::string> folders;
  std::istringstream lines(good ? answer.text : "");
  for (std::string folder; std::getline(lines, folder);) folders.push_back(folder);
  return folders;
}

}  // namespace dtrun::worker::cuda
