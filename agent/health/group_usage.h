// For each worker, its processes and the CPU time that they have used, from /proc/PID/stat.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace dtrun::agent {

struct ProcessStat {
  pid_t pid = 0;
  pid_t parent = 0;
  pid_t group = 0;
  std::string name;  // at most 15 characters, any bytes
  char state = '?';  // R, S, D, T, Z…
  // These two of it and of its children that it waited for.
  std::int64_t cpu_ticks = 0;  // user and system time
  std::int64_t major_faults = 0;
  std::int64_t threads = 0;
  std::int64_t resident_pages = 0;
};

// `text`: /proc/PID/stat. Nothing if it is none.
std::optional<ProcessStat> parse_stat(const std::string& text);

struct GroupUsage {
  std::int64_t cpu_ms = 0;
  std::uint64_t processes = 0;  // changes when a process of the group comes or goes
  std::vector<ProcessStat> members;
};

// Reads /proc once for all of `leaders`. A leader's entry has the processes of its group, and its descendants
// that left the group (under timeout(1), say). It is empty if there are none.
std::map<pid_t, GroupUsage> usage_of_groups(const std::vector<pid_t>& leaders);

}  // namespace dtrun::agent
