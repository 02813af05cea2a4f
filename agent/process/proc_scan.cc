#include "agent/process/proc_scan.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <thread>

#include "agent/core/limit_tag.h"
#include "agent/system/pidfd.h"
#include "proto/base/descriptor.h"
#include "proto/core/contract.h"
#include "proto/core/process_stat.h"

namespace dtrun::agent {
namespace {

std::optional<std::string> read_all(const std::string& path) {
  Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.open()) return std::nullopt;
  std::string text;
  char chunk[16384];
  ssize_t n;
  while ((n = read(file.get(), chunk, sizeof chunk)) > 0) text.append(chunk, static_cast<std::size_t>(n));
  return text;
}

bool carries(std::string_view environment, std::string_view tag) {
  const std::string name = std::string(kEnvProcessTag) + "=";
  while (!environment.empty()) {
    const std::size_t end = std::min(environment.find('\0'), environment.size());
    const std::string_view entry = environment.substr(0, end);
    if (entry.starts_with(name) && entry.find(tag) != std::string_view::npos) return true;
    environment.remove_prefix(std::min(end + 1, environment.size()));
  }
  return false;
}

std::string folder_of(pid_t pid) { return "/proc/" + std::to_string(pid); }

std::optional<ProcessStat> stat_of(const std::string& folder) {
  return parse_stat(read_all(folder + "/stat").value_or(""));
}

bool is_zombie(const std::string& folder) {
  const auto stat = stat_of(folder);
  return stat && stat->state == 'Z';
}

bool is_in_group(const std::string& folder, pid_t group) {
  const auto stat = stat_of(folder);
  return group > 0 && stat && stat->group == group && stat->state != 'Z';
}

// The words of its command line; of a process that has removed them its name.
std::string command_of(const std::string& folder) {
  std::string command = read_all(folder + "/cmdline").value_or("");
  while (command.ends_with('\0')) command.pop_back();
  std::ranges::replace(command, '\0', ' ');
  if (!command.empty()) return command;
  std::string name = read_all(folder + "/comm").value_or("?");
  if (name.ends_with('\n')) name.pop_back();
  return name;
}

// Tests whether a process carries the tag in its environment or in a limit. A zombie has lost its
// environment, but not its limits.
class Tagged {
 public:
  explicit Tagged(const std::string& tag) : tag_(tag), limit_tag_(limit_tag(tag)) {}

  bool operator()(pid_t pid) const {
    const std::string folder = folder_of(pid);
    if (const auto limits = read_all(folder + "/limits"); limits && has_tag(*limits, limit_tag_))
      return !is_zombie(folder);
    const auto environment = read_all(folder + "/environ");
    return environment && carries(*environment, tag_);
  }

 private:
  std::string tag_;
  LimitTag limit_tag_;
};

template <typename Visit>
void for_each_process(Visit visit) {
  DIR* proc = opendir("/proc");
  if (proc == nullptr) return;
  while (const dirent* entry = readdir(proc)) {
    const pid_t pid = std::atoi(entry->d_name);
    if (pid > 0) visit(pid);
  }
  closedir(proc);
}

// The handle is opened before the check, so a process that gets the same number later cannot be killed.
bool kill_if_tagged(pid_t pid, const Tagged& is_tagged) {
  Descriptor handle(open_pidfd(pid));
  if (!is_tagged(pid)) return false;
  if (handle.open()) return signal_pidfd(handle.get(), SIGKILL);
  return kill(pid, SIGKILL) == 0;
}

// This process's children that are not in `known`; nothing where the kernel does not list them.
std::optional<std::vector<pid_t>> other_children(const std::vector<pid_t>& known) {
  const auto text = read_all("/proc/self/task/" + std::to_string(getpid()) + "/children");
  if (!text) return std::nullopt;
  std::vector<pid_t> others;
  std::istringstream children(*text);
  for (pid_t pid; children >> pid;) {
    if (std::find(known.begin(), known.end(), pid) == known.end()) others.push_back(pid);
  }
  return others;
}

}  // namespace

std::vector<FoundProcess> find_by_tag(const std::string& tag, pid_t group) {
  std::vector<FoundProcess> found;
  const Tagged is_tagged(tag);
  for_each_process([&](pid_t pid) {
    Descriptor handle(open_pidfd(pid));
    const std::string folder = folder_of(pid);
    if (!is_tagged(pid) && !is_in_group(folder, group)) return;
    found.push_back({.pid = pid, .handle = std::move(handle), .command = command_of(folder)});
  });
  return found;
}

bool is_running(const FoundProcess& process) {
  if (!process.handle.open()) return kill(process.pid, 0) == 0;
  pollfd end{.fd = process.handle.get(), .events = POLLIN, .revents = 0};
  return poll(&end, 1, 0) == 0;
}

void signal_found(const FoundProcess& process, int number) {
  if (process.handle.open())
    signal_pidfd(process.handle.get(), number);
  else
    kill(process.pid, number);
}

std::vector<std::string> commands_of(const std::vector<FoundProcess>& found) {
  std::vector<std::string> commands;
  for (const FoundProcess& process : found) commands.push_back(process.command);
  return commands;
}

int kill_by_tag(const std::string& tag) {
  int killed = 0;
  const Tagged is_tagged(tag);
  for_each_process([&](pid_t pid) { killed += kill_if_tagged(pid, is_tagged) ? 1 : 0; });
  return killed;
}

int look_until_none(const std::function<int()>& look, int most) {
  int looks = 0;
  for (int empty = 0; looks < most && empty < 2; ++looks) empty = look() == 0 ? empty + 1 : 0;
  return looks;
}

bool has_other_children(const std::vector<pid_t>& known) {
  const auto others = other_children(known);
  return !others || !others->empty();
}

// The kernel does not reuse a child's number before we have reaped it, so no other process can be killed.
void kill_other_children(const std::vector<pid_t>& known, std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (std::chrono::steady_clock::now() < deadline) {
    const auto others = other_children(known);
    if (!others || others->empty()) return;
    bool reaped = false;
    for (pid_t pid : *others) {
      kill(pid, SIGKILL);
      reaped = waitpid(pid, nullptr, WNOHANG) == pid || reaped;
    }
    if (!reaped) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace dtrun::agent
