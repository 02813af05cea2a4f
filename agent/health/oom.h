// Tells a worker that the kernel killed for want of memory from one that somebody else sent SIGKILL: by the
// kernel's log where it may be read, else by the out-of-memory counter of the agent's control group.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "agent/system/descriptor.h"

namespace dtrun::agent {

// The value of "oom_kill N" in the text of memory.events, memory.oom_control or /proc/vmstat.
std::optional<std::int64_t> oom_kills(std::string_view text);

// The process that a line of the kernel's log says was killed for want of memory:
// "Out of memory: Killed process 4711 (python3) total-vm:…", also with "Memory cgroup out of memory:".
std::optional<pid_t> oom_victim(std::string_view line);

// Where the kernel counts the kills in the control group of a process, from the texts of its
// /proc/PID/cgroup and /proc/PID/mountinfo; /proc/vmstat, the whole machine's, if it has none of its own.
std::filesystem::path oom_counter(const std::string& cgroup, const std::string& mountinfo);

class OomWatch {
 public:
  // From now on. `counter`: see oom_counter(). `kernel_log`: /dev/kmsg, or empty where its process numbers
  // are not ours.
  OomWatch(std::filesystem::path counter, const std::filesystem::path& kernel_log);
  // For this process.
  static OomWatch of_this_process();

  // Whether `pid`, which has just been found dead of a SIGKILL that we did not send, was such a victim. By
  // the counter alone each kill explains one death.
  bool killed(pid_t pid);
  // Whether some process of ours was that nobody asked about yet: the program behind a shell that ended with
  // 137, say.
  bool killed_another();

 private:
  bool named_by_kernel(pid_t pid);

  std::filesystem::path counter_;
  std::optional<std::int64_t> accounted_;  // kills that are explained, or happened before us
  Descriptor kernel_log_;
  std::string victims_;  // " 4711 4712 " as the log named them
};

}  // namespace dtrun::agent
