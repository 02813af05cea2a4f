#include "agent/health/oom.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "proto/base/text_in.h"
#include "proto/core/control_group.h"
#include "proto/core/number.h"

namespace dtrun::agent {
namespace {

namespace fs = std::filesystem;

// PROC_PID_INIT_INO: the namespace whose process numbers the kernel's log uses.
constexpr ino_t kFirstPidNamespace = 0xEFFFFFFC;

}  // namespace

std::optional<std::int64_t> oom_kills(std::string_view text) {
  static constexpr std::string_view kName = "oom_kill ";
  for (std::size_t at = 0; (at = text.find(kName, at)) != std::string_view::npos; at += kName.size()) {
    if (at == 0 || text[at - 1] == '\n')
      return parse_leading_number<std::int64_t>(text.substr(at + kName.size()));
  }
  return std::nullopt;
}

std::optional<pid_t> oom_victim(std::string_view line) {
  static constexpr std::string_view kWords = "Killed process ";
  const std::size_t at = line.find(kWords);
  if (at == std::string_view::npos) return std::nullopt;
  return parse_leading_number<pid_t>(line.substr(at + kWords.size()));
}

fs::path oom_counter(const std::string& cgroup, const std::string& mountinfo) {
  fs::path machine = "/proc/vmstat";
  const auto groups = control_groups("memory", cgroup, mountinfo);
  if (groups.empty()) return machine;
  return groups[0].folder / (groups[0].unified ? "memory.events" : "memory.oom_control");
}

OomWatch::OomWatch(fs::path counter, const fs::path& kernel_log) : counter_(std::move(counter)) {
  accounted_ = oom_kills(text_in(counter_));
  if (!accounted_) {  // the root of the unified hierarchy has no such file
    counter_ = "/proc/vmstat";
    accounted_ = oom_kills(text_in(counter_));
  }
  if (kernel_log.empty()) return;
  kernel_log_.reset(open(kernel_log.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (kernel_log_.open()) lseek(kernel_log_.get(), 0, SEEK_END);
}

OomWatch OomWatch::of_this_process() {
  struct stat space {};
  const bool ours = stat("/proc/self/ns/pid", &space) == 0 && space.st_ino == kFirstPidNamespace;
  return {oom_counter(text_in("/proc/self/cgroup"), text_in("/proc/self/mountinfo")),
          ours ? "/dev/kmsg" : ""};
}

bool OomWatch::killed(pid_t pid) {
  const bool named = named_by_kernel(pid);
  if (kernel_log_.open() && !named) return false;
  return killed_another() || named;
}

bool OomWatch::killed_another() {
  const auto kills = oom_kills(text_in(counter_));
  if (!accounted_ || !kills || *kills <= *accounted_) return false;
  ++*accounted_;
  return true;
}

void OomWatch::forget_old(std::chrono::steady_clock::time_point now) {
  constexpr std::chrono::seconds kOld{30};
  if (!accounted_ || now - marked_at_ < kOld) return;
  accounted_ = std::max(*accounted_, marked_);
  marked_ = oom_kills(text_in(counter_)).value_or(marked_);
  marked_at_ = now;
}

// Each read of /dev/kmsg gives one record; a record that was overwritten before we came gives EPIPE.
bool OomWatch::named_by_kernel(pid_t pid) {
  if (!kernel_log_.open()) return false;
  char record[8192];
  for (;;) {
    const ssize_t n = read(kernel_log_.get(), record, sizeof record);
    if (n < 0 && (errno == EPIPE || errno == EINTR)) continue;
    if (n <= 0) break;
    if (const auto victim = oom_victim({record, static_cast<std::size_t>(n)})) {
      victims_ += " " + std::to_string(*victim) + " ";
    }
  }
  return victims_.find(" " + std::to_string(pid) + " ") != std::string::npos;
}

}  // namespace dtrun::agent
