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
  std::string name;            // at most 15 characters, any bytes
  char state = '?';            // R, S, D, T, Z…
  std::int64_t cpu_ticks = 0;  // user and system time of it and of its children that it waited for
};

// Nothing if `text` is no /proc/PID/stat.
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
