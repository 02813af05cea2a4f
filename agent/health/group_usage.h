// What workers use with all of their processes, from /proc/PID/stat: the CPU time of their processes and
// which they are.
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
  std::uint64_t processes = 0;  // a number that changes when the group's processes do
  std::vector<ProcessStat> members;
};

// One look at /proc for all of `leaders`: the processes of the group that each leads, and those that descend
// from it although they left the group (under timeout(1), say). Without any, an entry is empty.
std::map<pid_t, GroupUsage> usage_of_groups(const std::vector<pid_t>& leaders);

}  // namespace dtrun::agent
