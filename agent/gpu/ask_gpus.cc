#include "agent/gpu/ask_gpus.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "agent/gpu/reading_json.h"
#include "agent/system/descriptor.h"

extern char** environ;

namespace dtrun::agent {
namespace {

using Clock = std::chrono::steady_clock;

// -1 if it cannot be started. It reads nothing, and what it has to say of errors is in the reading.
pid_t start(const std::vector<std::string>& command, int out) {
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t pid = -1;
  const int error = posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  return error == 0 ? pid : -1;
}

// All that is written to `fd` up to its end; nothing more after the deadline.
bool read_all(int fd, Clock::time_point deadline, std::string* text) {
  char part[4096];
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd ready{.fd = fd, .events = POLLIN, .revents = 0};
    const int polled = poll(&ready, 1, static_cast<int>(left > 0 ? left : 0));
    if (polled < 0 && errno == EINTR) continue;
    if (polled <= 0) return false;
    const ssize_t n = read(fd, part, sizeof part);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n == 0;
    text->append(part, static_cast<std::size_t>(n));
  }
}

}  // namespace

// WSL has its GPUs behind /dev/dxg.
bool driver_may_be_here() {
  for (const char* sign : {"/dev/nvidiactl", "/proc/driver/nvidia", "/dev/dxg"})
    if (access(sign, F_OK) == 0) return true;
  return std::getenv("DTRUN_CUDA_LIBRARY_PATH") != nullptr;
}

GpuReading ask_gpus(const std::vector<std::string>& command, std::chrono::milliseconds limit) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    return {.gpus = {}, .failure = "no descriptors are left to ask its driver"};
  Descriptor in(ends[0]), out(ends[1]);
  const pid_t pid = start(command, out.get());
  if (pid < 0) return {.gpus = {}, .failure = "cannot start " + command[0] + " to ask its driver"};
  out.reset();
  std::string text;
  const bool answered = read_all(in.get(), Clock::now() + limit, &text);
  if (!answered) kill(pid, SIGKILL);
  // One that hangs in the driver does not end, and is left alone.
  while (waitpid(pid, nullptr, answered ? 0 : WNOHANG) < 0 && errno == EINTR) {
  }
  if (!answered) {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(limit).count();
    return {.gpus = {}, .failure = "the NVIDIA driver did not answer for " + std::to_string(seconds) + " s"};
  }
  if (auto reading = reading_of(text)) return *std::move(reading);
  return {.gpus = {}, .failure = "asking the NVIDIA driver failed"};
}

}  // namespace dtrun::agent
