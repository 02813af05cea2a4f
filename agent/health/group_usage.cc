#include "agent/health/group_usage.h"

#include <dirent.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <sstream>

namespace dtrun::agent {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line, '\0');
  return line;
}

std::map<pid_t, ProcessStat> all_processes() {
  std::map<pid_t, ProcessStat> table;
  DIR* proc = opendir("/proc");
  if (proc == nullptr) return table;
  while (const dirent* entry = readdir(proc)) {
    if (std::atoi(entry->d_name) <= 0) continue;
    if (auto stat = parse_stat(first_line("/proc/" + std::string(entry->d_name) + "/stat"))) {
      table[stat->pid] = std::move(*stat);
    }
  }
  closedir(proc);
  return table;
}

// The one of `leaders` that `process` belongs to, by its group or by its ancestors'; 0 if none.
pid_t leader_of(const ProcessStat& process, const std::map<pid_t, ProcessStat>& table,
                const std::map<pid_t, GroupUsage>& leaders) {
  const ProcessStat* at = &process;
  for (int depth = 0; depth < 64; ++depth) {  // the table is no snapshot: parents could form a circle
    if (leaders.count(at->group) > 0) return at->group;
    const auto parent = table.find(at->parent);
    if (parent == table.end()) break;
    at = &parent->second;
  }
  return 0;
}

}  // namespace

// "PID (name) S PPID PGRP SESSION TTY TPGID FLAGS MINFLT CMINFLT MAJFLT CMAJFLT UTIME STIME CUTIME CSTIME
// PRIORITY NICE THREADS ITREAL START VSIZE RSS …": the name may hold spaces and parentheses, so the last ")"
// ends it.
std::optional<ProcessStat> parse_stat(const std::string& text) {
  const std::size_t open = text.find('('), close = text.rfind(')');
  if (open == std::string::npos || close == std::string::npos || close < open) return std::nullopt;
  ProcessStat stat;
  stat.pid = std::atoi(text.c_str());
  stat.name = text.substr(open + 1, close - open - 1);
  std::istringstream rest(text.substr(close + 1));
  rest >> stat.state;
  std::array<std::int64_t, 21> numbers{};  // from PPID on
  for (std::int64_t& number : numbers) rest >> number;
  if (!rest) return std::nullopt;
  stat.parent = static_cast<pid_t>(numbers[0]);
  stat.group = static_cast<pid_t>(numbers[1]);
  stat.major_faults = numbers[8] + numbers[9];
  stat.cpu_ticks = numbers[10] + numbers[11] + numbers[12] + numbers[13];
  stat.threads = numbers[16];
  stat.resident_pages = numbers[20];
  return stat;
}

std::map<pid_t, GroupUsage> usage_of_groups(const std::vector<pid_t>& leaders) {
  static const std::int64_t ticks_per_second = sysconf(_SC_CLK_TCK);
  std::map<pid_t, GroupUsage> usage;
  for (pid_t leader : leaders) usage[leader];
  const std::map<pid_t, ProcessStat> table = all_processes();
  for (const auto& [pid, stat] : table) {
    const auto group = usage.find(leader_of(stat, table, usage));
    if (group == usage.end()) continue;
    group->second.cpu_ms += stat.cpu_ticks * 1000 / ticks_per_second;
    group->second.processes = group->second.processes * 1000003u + static_cast<std::uint64_t>(pid);
    group->second.members.push_back(stat);
  }
  return usage;
}

}  // namespace dtrun::agent
