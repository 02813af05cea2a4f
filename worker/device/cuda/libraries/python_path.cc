#include "worker/device/cuda/libraries/python_path.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <sstream>

namespace dtrun::worker::cuda {
namespace {

constexpr char kProgram[] = "import sys; print(*filter(None, sys.path), sep='\\n')";

// Starts `python` with its output to `write_end`; -1 on failure. The process leads a process group, so that
// programs which a wrapper (pyenv's) starts are killed with it.
pid_t start(const std::string& python, int write_end) {
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&files, write_end, STDOUT_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  const char* const arguments[] = {python.c_str(), "-c", kProgram, nullptr};
  pid_t child = -1;
  const int error =
      posix_spawnp(&child, python.c_str(), &files, &attributes, const_cast<char* const*>(arguments), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  return error == 0 ? child : -1;
}

// Reads until the other end is closed; false if that is not before `deadline`.
bool read_until(int read_end, std::chrono::steady_clock::time_point deadline, std::string& text) {
  char buffer[4096];
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd readable{read_end, POLLIN, 0};
    if (left.count() <= 0) return false;
    if (poll(&readable, 1, static_cast<int>(left.count())) <= 0) continue;
    const ssize_t count = read(read_end, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return count == 0;
    text.append(buffer, static_cast<std::size_t>(count));
  }
}

}  // namespace

std::vector<std::string> python_path(const std::string& python, std::chrono::milliseconds limit) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return {};
  const pid_t child = start(python, ends[1]);
  close(ends[1]);
  std::string text;
  bool good = child > 0 && read_until(ends[0], std::chrono::steady_clock::now() + limit, text);
  close(ends[0]);
  if (child > 0) {
    if (!good) kill(-child, SIGKILL);
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    good = good && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  std::vector<std::string> folders;
  std::istringstream lines(good ? text : "");
  for (std::string folder; std::getline(lines, folder);) folders.push_back(folder);
  return folders;
}

}  // namespace dtrun::worker::cuda
