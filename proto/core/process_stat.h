// What the kernel says of a process in /proc/PID/stat. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace dtrun {

struct ProcessStat {
  int pid = 0;
  int parent = 0;
  int group = 0;
  char state = '?';            // R, S, D, T, Z…
  std::int64_t own_ticks = 0;  // user and system time
  // These two of it and of its children that it waited for.
  std::int64_t cpu_ticks = 0;
  std::int64_t major_faults = 0;
  std::int64_t threads = 0;
  std::int64_t start_ticks = 0;  // since the system's start
  std::int64_t virtual_bytes = 0;
  std::int64_t resident_pages = 0;
};

// Nothing if `text` is no such line.
std::optional<ProcessStat> parse_stat(const std::string& text);

}  // namespace dtrun
