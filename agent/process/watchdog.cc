#include "agent/process/watchdog.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "agent/process/proc_scan.h"

namespace dtrun::agent {
namespace {

void pause_ms(long ms) {
  const timespec time{0, ms * 1000000};
  nanosleep(&time, nullptr);
}

// At most 30 s: a process that cannot be killed by then hangs in the kernel.
void kill_all(const std::string& tag) {
  const auto look = [&] {
    const int found = kill_by_tag(tag);
    pause_ms(10);
    return found;
  };
  look_until_none(look, 3000);
}

[[noreturn]] void stand_guard(int lifeline, const std::string& tag, const std::filesystem::path& scratch) {
  setsid();
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  prctl(PR_SET_NAME, "watchdog");
  // Closes every terminal, pipe and port: else a process could wait for the end of one that only the watchdog
  // still holds.
  const int null = open("/dev/null", O_RDWR);
  for (int fd = 0; fd < 3; ++fd) dup2(null, fd);
  dup2(lifeline, 3);
  if (close_range(4, ~0u, 0) != 0) {
    for (int fd = 4; fd < 4096; ++fd) close(fd);
  }
  char nothing;
  while (read(3, &nothing, 1) < 0 && errno == EINTR) {
  }
  kill_all(tag);
  std::error_code ignored;
  std::filesystem::remove_all(scratch, ignored);
  _exit(0);
}

}  // namespace

bool Watchdog::start() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return false;
  Descriptor read_end(ends[0]);
  Descriptor write_end(ends[1]);
  const pid_t pid = fork();
  if (pid == 0) {
    write_end.reset();
    stand_guard(read_end.get(), tag_, scratch_);
  }
  if (pid < 0) return false;
  pid_ = pid;
  lifeline_ = std::move(write_end);
  return true;
}

void Watchdog::dismiss() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);  // before the lifeline closes; nothing else would end a stopped one
  lifeline_.reset();
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
}

}  // namespace dtrun::agent
