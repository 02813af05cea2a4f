#include "agent/proc_scan.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/pidfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <string_view>

#include "agent/descriptor.h"
#include "proto/contract.h"

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

bool carries(std::string_view environment, std::string_view token, std::string_view also) {
  const std::string name = std::string(kEnvAgentToken) + "=";
  bool has_token = false, has_also = also.empty();
  while (!environment.empty()) {
    const std::size_t end = std::min(environment.find('\0'), environment.size());
    const std::string_view entry = environment.substr(0, end);
    has_token = has_token || (entry.starts_with(name) && entry.find(token) != std::string_view::npos);
    has_also = has_also || entry == also;
    environment.remove_prefix(std::min(end + 1, environment.size()));
  }
  return has_token && has_also;
}

bool matches(pid_t pid, const std::string& token, const std::string& also) {
  const auto environment = read_all("/proc/" + std::to_string(pid) + "/environ");
  return environment && carries(*environment, token, also);
}

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

// The handle is taken before the look: a process that takes over the number later cannot be hit.
bool kill_if_matching(pid_t pid, const std::string& token, const std::string& also) {
  Descriptor handle(pidfd_open(pid, 0));
  if (!matches(pid, token, also)) return false;
  if (handle.open()) return pidfd_send_signal(handle.get(), SIGKILL, nullptr, 0) == 0;
  return kill(pid, SIGKILL) == 0;
}

}  // namespace

std::vector<pid_t> find_by_token(const std::string& token, const std::string& also) {
  std::vector<pid_t> found;
  for_each_process([&](pid_t pid) {
    if (matches(pid, token, also)) found.push_back(pid);
  });
  return found;
}

int kill_by_token(const std::string& token, const std::string& also) {
  int killed = 0;
  for_each_process([&](pid_t pid) { killed += kill_if_matching(pid, token, also) ? 1 : 0; });
  return killed;
}

bool has_other_children(const std::vector<pid_t>& known) {
  const std::string self = std::to_string(getpid());
  const auto text = read_all("/proc/self/task/" + self + "/children");
  if (!text) return true;
  std::istringstream children(*text);
  for (pid_t pid; children >> pid;) {
    if (std::find(known.begin(), known.end(), pid) == known.end()) return true;
  }
  return false;
}

}  // namespace dtrun::agent
