// Finds out whether the kernel killed a worker because memory ran out, or another process sent it SIGKILL.
// Uses the kernel's log where it may be read, else the out-of-memory counter of the agent's control group.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "proto/base/descriptor.h"

namespace dtrun::agent {

// The value of "oom_kill N" in the text of memory.events, memory.oom_control or /proc/vmstat.
std::optional<std::int64_t> oom_kills(std::string_view text);

// The process that the kernel killed because memory ran out, if this line of its log says so: "Out of memory:
// Killed process 4711 (python3) total-vm:…", also with "Memory cgroup out of memory:".
std::optional<pid_t> oom_victim(std::string_view line);

// The file in which the kernel counts such kills for the control group of a process, from the texts of its
// /proc/PID/cgroup and /proc/PID/mountinfo. If the group has no such file: /proc/vmstat, the whole machine's.
std::filesystem::path oom_counter(const std::string& cgroup, const std::string& mountinfo);

class OomWatch {
 public:
  // Counts from now on. `counter`: see oom_counter(). `kernel_log`: /dev/kmsg, or empty where its process
  // numbers are not ours.
  OomWatch(std::filesystem::path counter, const std::filesystem::path& kernel_log);
  // For this process.
  static OomWatch of_this_process();

  // True if the kernel killed `pid` for lack of memory. Ask for a process that has just died of a SIGKILL
  // that we did not send. With the counter alone, each kill explains one death.
  bool killed(pid_t pid);
  // True if the kernel killed another process of ours of late that has not been asked for yet: the program
  // behind a shell, or a worker of a DataLoader.
  bool killed_another();
  // Kills that are older than a minute at most, and half a minute at least, explain no death any more. To be
  // called now and then.
  void forget_old(std::chrono::steady_clock::time_point now);

 private:
  bool named_by_kernel(pid_t pid);

  std::filesystem::path counter_;
  std::optional<std::int64_t> accounted_;  // kills that are explained, or happened long ago or before us
  std::int64_t marked_ = 0;                // kills at marked_at_
  std::chrono::steady_clock::time_point marked_at_;
  Descriptor kernel_log_;
  std::string victims_;  // " 4711 4712 " as the log named them
};

}  // namespace dtrun::agent
