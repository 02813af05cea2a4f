#include "agent/health/group_usage.h"

#include <dirent.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "proto/base/text_in.h"

namespace dtrun::agent {
namespace {

// The one of `leaders` that `process` belongs to, by its group or by its ancestors'; 0 if none.
pid_t leader_of(const ProcessStat& process, const ProcessTable& table,
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

ProcessTable all_processes() {
  ProcessTable table;
  DIR* proc = opendir("/proc");
  if (proc == nullptr) return table;
  while (const dirent* entry = readdir(proc)) {
    if (std::atoi(entry->d_name) <= 0) continue;
    if (const auto stat = parse_stat(text_in("/proc/" + std::string(entry->d_name) + "/stat")))
      table[stat->pid] = *stat;
  }
  closedir(proc);
  return table;
}

std::map<pid_t, GroupUsage> usage_of_groups(const std::vector<pid_t>& leaders, const ProcessTable& table) {
  static const std::int64_t ticks_per_second = sysconf(_SC_CLK_TCK);
  std::map<pid_t, GroupUsage> usage;
  for (pid_t leader : leaders) usage[leader];
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
