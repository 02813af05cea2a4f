#include "tests/support/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <sstream>
#include <stdexcept>

#include "tests/support/clock.h"
#include "tests/support/files.h"

extern char** environ;

namespace dtrun::test {
namespace {

// Patience is in fair time, which no system call waits for: this often who waits for an event looks at it.
constexpr Process::Duration kLook{100};

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> out;
  for (const std::string& string : strings) out.push_back(const_cast<char*>(string.c_str()));
  out.push_back(nullptr);
  return out;
}

struct Child {
  pid_t pid;
  std::string name;  // at most 15 characters
  char state;
};

std::vector<Child> children_of(pid_t parent) {
  std::vector<Child> found;
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc", error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string stat = read_if_there(entry->path() / "stat");
    const std::size_t open = stat.find('('), close = stat.rfind(')');
    if (open == std::string::npos || close == std::string::npos) continue;
    char state = 0;
    pid_t its_parent = 0;
    std::istringstream(stat.substr(close + 1)) >> state >> its_parent;
    if (its_parent == parent)
      found.push_back({std::atoi(stat.c_str()), stat.substr(open + 1, close - open - 1), state});
  }
  return found;
}

// The process and its descendants, a line each, with where the kernel holds each of their threads: where a
// log is silent that tells what a process waited for until its deadline.
std::string tree_of(pid_t pid, const std::string& indent = "  ") {
  const std::filesystem::path folder = "/proc/" + std::to_string(pid);
  std::string text = indent + std::to_string(pid) + " " + read_if_there(folder / "cmdline").substr(0, 200);
  std::ranges::replace(text, '\0', ' ');
  std::error_code error;
  for (std::filesystem::directory_iterator task(folder / "task", error), end; !error && task != end;
       task.increment(error))
    text += " [" + read_if_there(task->path() / "wchan") + "]";
  text += "\n";
  for (const Child& child : children_of(pid)) text += tree_of(child.pid, indent + "  ");
  return text;
}

}  // namespace

void Process::Collector::start(int fd) {
  reader_ = std::thread([this, fd] {
    char chunk[65536];
    for (ssize_t n; (n = read(fd, chunk, sizeof chunk)) > 0;) {
      {
        std::lock_guard lock(mutex_);
        text_.append(chunk, static_cast<std::size_t>(n));
      }
      more_.notify_all();
    }
    close(fd);
  });
}

void Process::Collector::join() {
  if (reader_.joinable()) reader_.join();
}

std::string Process::Collector::text() const {
  std::lock_guard lock(mutex_);
  return text_;
}

bool Process::Collector::wait_for(const std::string& text, Duration limit) const {
  const Patience patience(limit);
  std::unique_lock lock(mutex_);
  for (std::size_t from = 0;;) {
    if (text_.find(text, from) != std::string::npos) return true;
    if (patience.is_over()) return false;
    from = text_.size() < text.size() ? 0 : text_.size() - text.size() + 1;
    more_.wait_for(lock, kLook);
  }
}

Process::Process(const std::vector<std::string>& argv, const std::vector<std::string>& environment) {
  int out[2], err[2];
  if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
  std::vector<std::string> entries = environment;
  const std::string config = "XDG_CONFIG_HOME=";
  if (std::ranges::none_of(entries, [&](const std::string& given) { return given.starts_with(config); }))
    entries.push_back(config + DTRUN_BIN_DIR + "/../tests/config");
  // Once each: of two entries of a name getenv takes the first, and a shell the last.
  const auto is_given = [&](const std::string& entry) {
    const std::string name = entry.substr(0, entry.find('=') + 1);
    return std::ranges::any_of(entries, [&](const std::string& given) { return given.starts_with(name); });
  };
  for (char** entry = environ; *entry != nullptr; ++entry)
    if (!is_given(*entry)) entries.emplace_back(*entry);
  auto arguments = pointers(argv), variables = pointers(entries);
  pid_ = fork();
  if (pid_ == 0) {
    setpgid(0, 0);
    dup2(out[1], STDOUT_FILENO);
    dup2(err[1], STDERR_FILENO);
    execvpe(arguments[0], arguments.data(), variables.data());
    _exit(127);
  }
  if (pid_ < 0) throw std::runtime_error("fork");
  setpgid(pid_, pid_);  // here, too: whoever asks for its group next would else hear of this process's own
  close(out[1]);
  close(err[1]);
  out_.start(out[0]);
  err_.start(err[0]);
}

Process::~Process() {
  if (!reaped_) wait(Duration(0));
}

void Process::signal(int number) const { kill(pid_, number); }

bool Process::wait_for_out(const std::string& text, Duration limit) const {
  return out_.wait_for(text, limit);
}

bool Process::wait_for_err(const std::string& text, Duration limit) const {
  return err_.wait_for(text, limit);
}

bool Process::ends_within(Duration limit) const {
  const int fd = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));  // glibc 2.36 knows it by name
  if (fd < 0) throw std::runtime_error("pidfd_open");
  pollfd end{.fd = fd, .events = POLLIN, .revents = 0};
  const Patience patience(limit);
  while (poll(&end, 1, std::min<int>(static_cast<int>(limit.count()), kLook.count())) <= 0 &&
         !patience.is_over()) {
  }
  close(fd);
  return (end.revents & POLLIN) != 0;
}

int Process::wait(Duration limit) {
  if (reaped_) return code_;
  const bool in_time = ends_within(limit);
  if (!in_time && limit > Duration(0))
    std::cerr << "still there after " << limit.count() << " ms, so killed:\n" << tree_of(pid_);
  if (!in_time) kill(-pid_, SIGKILL);
  int status = 0;
  waitpid(pid_, &status, 0);
  reaped_ = true;
  out_.join();
  err_.join();
  if (in_time) code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return code_;
}

Ended Process::end(Duration limit) {
  const int exit_code = wait(limit);
  return {.exit_code = exit_code, .out = out(), .err = err()};
}

std::vector<std::string> joined(std::vector<std::string> first, const std::vector<std::string>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

Ended run(const std::vector<std::string>& argv, const std::vector<std::string>& environment) {
  return Process(argv, environment).end();
}

std::string output_of(const std::vector<std::string>& argv) {
  const Ended ended = run(argv);
  if (ended.exit_code == 0) return ended.out;
  std::string command;
  for (const std::string& word : argv) command += word + " ";
  throw std::runtime_error(command + "failed: " + ended.err);
}

bool eventually(const std::function<bool()>& condition, Process::Duration limit) {
  const Patience patience(limit);
  for (Process::Duration rest(1); !condition(); rest = std::min(2 * rest, Process::Duration(20))) {
    if (patience.is_over()) return false;
    std::this_thread::sleep_for(rest);
  }
  return true;
}

bool is_alive(pid_t pid) {
  const std::string stat = read_if_there("/proc/" + std::to_string(pid) + "/stat");
  const std::size_t close = stat.rfind(')');
  return close != std::string::npos && close + 2 < stat.size() && stat[close + 2] != 'Z' &&
         stat[close + 2] != 'X';
}

std::vector<std::string> preloaded(const std::string& library) {
  const std::filesystem::path path = library;
  return {"LD_PRELOAD=" + path.filename().string(), "LD_LIBRARY_PATH=" + path.parent_path().string(),
          "ASAN_OPTIONS=verify_asan_link_order=0"};
}

std::string shell_text(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    text += text.empty() ? "'" : " '";
    for (const char c : word) text += c == '\'' ? "'\\''" : std::string(1, c);
    text += "'";
  }
  return text;
}

std::vector<pid_t> children_of(pid_t parent, const std::string& name) {
  std::vector<pid_t> found;
  for (const Child& child : children_of(parent))
    if (child.name == name && child.state != 'Z') found.push_back(child.pid);
  return found;
}

std::vector<pid_t> processes_with(const std::string& text) {
  std::vector<pid_t> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const pid_t pid = std::atoi(entry.path().filename().c_str());
    if (pid > 0 && read_if_there(entry.path() / "cmdline").find(text) != std::string::npos && is_alive(pid)) {
      found.push_back(pid);
    }
  }
  return found;
}

}  // namespace dtrun::test
