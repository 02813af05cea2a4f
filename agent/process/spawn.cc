#include "agent/process/spawn.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>

#include "agent/system/core_files.h"
#include "proto/base/descriptor.h"
#include "proto/core/utf8.h"

namespace dtrun::agent {
namespace {

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> out;
  for (const std::string& string : strings) out.push_back(const_cast<char*>(string.c_str()));
  out.push_back(nullptr);
  return out;
}

// A cpu_set_t that is large enough for its highest CPU.
class CpuMask {
 public:
  explicit CpuMask(const std::vector<int>& cpus) {
    if (cpus.empty()) return;
    const int highest = *std::max_element(cpus.begin(), cpus.end());
    words_.resize(CPU_ALLOC_SIZE(static_cast<std::size_t>(highest) + 1) / sizeof(std::uint64_t));
    for (int cpu : cpus) CPU_SET_S(static_cast<std::size_t>(cpu), bytes(), set());
  }
  bool empty() const { return words_.empty(); }
  std::size_t bytes() const { return words_.size() * sizeof(std::uint64_t); }
  const cpu_set_t* set() const { return reinterpret_cast<const cpu_set_t*>(words_.data()); }

 private:
  cpu_set_t* set() { return reinterpret_cast<cpu_set_t*>(words_.data()); }
  std::vector<std::uint64_t> words_;
};

struct Exec {
  char** argv;
  char** environment;
  const SpawnPlan* plan;
  const CpuMask* cpus;
  rlimit file_locks, core_files;
  pid_t parent;
  int error_fd;
};

void close_others_on_exec() {
  if (close_range(kControlFd, ~0u, CLOSE_RANGE_CLOEXEC) == 0) return;
  const long limit = sysconf(_SC_OPEN_MAX);  // an old kernel
  for (int fd = kControlFd; fd < limit && fd < 65536; ++fd) fcntl(fd, F_SETFD, FD_CLOEXEC);
}

bool install_descriptors(const SpawnPlan& plan) {
  close_others_on_exec();
  if (dup2(plan.stdin_fd, 0) < 0 || dup2(plan.stdout_fd, 1) < 0 || dup2(plan.stderr_fd, 2) < 0) return false;
  if (plan.control_fd == kControlFd && fcntl(kControlFd, F_SETFD, 0) != 0) return false;
  if (plan.control_fd >= 0 && dup2(plan.control_fd, kControlFd) < 0) return false;
  const auto given = [](int fd, int number) { return fd < 0 || dup2(fd, number) == number; };
  return given(plan.in_memory_checkpoint_fd, kInMemoryCheckpointFd) &&
         given(plan.operations_fd, kOperationsFd) && given(plan.data_fd, kDataFd);
}

bool bind_to(const CpuMask& cpus) {
  return cpus.empty() || sched_setaffinity(0, cpus.bytes(), cpus.set()) == 0;
}

void restore_signals() {
  struct sigaction fallback {};
  fallback.sa_handler = SIG_DFL;
  for (int number = 1; number < NSIG; ++number) sigaction(number, &fallback, nullptr);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

rlimit file_locks_of(const SpawnPlan& plan) {
  rlimit own{};
  getrlimit(RLIMIT_LOCKS, &own);
  if (plan.limit_tag.mask == 0) return own;
  const Limit tagged = tagged_limit({own.rlim_cur, own.rlim_max}, plan.limit_tag);
  return {tagged.soft, tagged.hard};
}

// Runs in the child, which shares the parent's memory (vfork): system calls only, no writes but to its stack.
[[noreturn]] void become(const Exec& exec) {
  setsid();  // a group of its own, that may read a terminal without being stopped for it
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != exec.parent) _exit(128 + SIGKILL);  // the parent died before the line above
  setrlimit(RLIMIT_LOCKS, &exec.file_locks);  // refused if the hard limit is low; then the tag must do
  setrlimit(RLIMIT_CORE, &exec.core_files);
  if (install_descriptors(*exec.plan) && bind_to(*exec.cpus)) {
    restore_signals();
    execvpe(exec.argv[0], exec.argv, exec.environment);
  }
  const int error = errno;
  [[maybe_unused]] const ssize_t n = write(exec.error_fd, &error, sizeof error);
  _exit(127);
}

// The signal mask stays full in between, so that no signal's handler or default can strike the child early.
[[gnu::noinline]] pid_t start(const Exec& exec) {
  const pid_t pid = vfork();
  if (pid == 0) become(exec);
  return pid;
}

// Of a program that is there, while execve(2) says that it is not.
std::string missing_interpreter(const std::string& program) {
  constexpr std::size_t kLongest = 255;  // the kernel reads no more
  std::ifstream file(program, std::ios::binary);
  std::string line(kLongest, 0);
  file.read(line.data(), kLongest);
  line.resize(static_cast<std::size_t>(file.gcount()));
  line.resize(std::min(line.find('\n'), line.size()));
  if (!line.starts_with("#!"))
    return "the program loader that it names is missing (is it of another system?)";
  if (line.ends_with('\r'))
    return "its first line ends with a carriage return, as Windows writes it: dos2unix " + program;
  const std::size_t begin = std::min(line.find_first_not_of(' ', 2), line.size());
  return "the interpreter that its first line names is missing: " +
         printable(line.substr(begin, line.find(' ', begin) - begin));
}

// Why execvp failed, where its errno alone would mislead.
std::string reason(const std::string& program, int error) {
  struct stat file {};
  const bool exists = stat(program.c_str(), &file) == 0;
  const bool by_path = program.find('/') != std::string::npos;
  if (error == ENOENT && !by_path) {
    const bool here = exists && S_ISREG(file.st_mode);
    return "no such program in PATH" + (here ? " (the one in this directory is ./" + program + ")" : "");
  }
  if (error == ENOENT && exists) return missing_interpreter(program);
  if (error == EACCES && exists && S_ISDIR(file.st_mode)) return "it is a directory";
  if (error == EACCES && exists && by_path && access(program.c_str(), X_OK) != 0) {
    return "it is not executable (chmod +x; for a Python script without .py: --run_path)";
  }
  return std::strerror(error);
}

Status cannot_execute(const std::string& program, int error) {
  const bool missing = error == ENOENT || error == ENOTDIR;
  return Status(missing ? 127 : 126, "cannot start '" + program + "': " + reason(program, error));
}

}  // namespace

Result<pid_t> spawn(const SpawnPlan& plan) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return errno_status(kExitSoftware, "cannot make a pipe", errno);
  Descriptor read_end(ends[0]), low_end(ends[1]);
  Descriptor write_end(fcntl(low_end.get(), F_DUPFD_CLOEXEC, kFirstSpareFd));
  low_end.reset();

  std::vector<char*> argv = pointers(plan.argv), environment = pointers(plan.environment);
  const CpuMask cpus(plan.cpus);
  const pid_t pid = start({argv.data(), environment.data(), &plan, &cpus, file_locks_of(plan),
                           core_file_limit(), getpid(), write_end.get()});
  if (pid < 0) {
    return Status(kExitOsError,
                  "cannot start a process for '" + plan.argv[0] + "': " + std::strerror(errno) +
                      " (see ulimit -a, and the limits of its container, for processes and memory)");
  }

  write_end.reset();
  int error = 0;
  if (read(read_end.get(), &error, sizeof error) == sizeof error) {
    waitpid(pid, nullptr, 0);
    return cannot_execute(plan.argv[0], error);
  }
  return pid;
}

}  // namespace dtrun::agent
