#include "proto/base/answer.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "proto/base/descriptor.h"

extern char** environ;

namespace dtrun {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMostRead = 1 << 20;  // bytes

// All of the input at once: a pipe would have to be written while the answer is read.
Descriptor input_file(const std::string& input) {
  Descriptor file(memfd_create("dtrun_input", MFD_CLOEXEC));
  const auto size = static_cast<ssize_t>(input.size());
  const bool whole = file.open() && write(file.get(), input.data(), input.size()) == size;
  if (!whole || lseek(file.get(), 0, SEEK_SET) != 0) file.reset();
  return file;
}

// -1 if it cannot be started.
pid_t start(const std::vector<std::string>& command, int in, int out) {
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawnattr_t attributes;  // a process group of its own, which can be killed whole
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  pid_t pid = -1;
  const int error = posix_spawnp(&pid, argv[0], &actions, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return error == 0 ? pid : -1;
}

// All that is written to `fd` up to its end; false after the deadline, or where it is too much.
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
    if (text->size() > kMostRead) return false;
  }
}

}  // namespace

CommandAnswer answer_of(const std::vector<std::string>& command, const std::string& input,
                        std::chrono::milliseconds limit) {
  const Descriptor given = input_file(input);
  int ends[2];
  if (!given.open() || pipe2(ends, O_CLOEXEC) != 0) return {.end = CommandAnswer::kNoDescriptors, .text = {}};
  Descriptor in(ends[0]), out(ends[1]);
  const pid_t pid = start(command, given.get(), out.get());
  if (pid < 0) return {.end = CommandAnswer::kNotStarted, .text = {}};
  out.reset();
  CommandAnswer answer;
  const bool answered = read_all(in.get(), Clock::now() + limit, &answer.text);
  if (!answered) kill(-pid, SIGKILL);
  // One that hangs in a driver does not end, and is left alone.
  while (waitpid(pid, &answer.status, answered ? 0 : WNOHANG) < 0 && errno == EINTR) {
  }
  if (!answered) return {.end = CommandAnswer::kSilent, .text = {}};
  return answer;
}

}  // namespace dtrun
