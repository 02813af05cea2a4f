// For each worker, its processes and the CPU time that they have used.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <vector>

#include "proto/core/process_stat.h"

namespace dtrun::agent {

struct GroupUsage {
  std::int64_t cpu_ms = 0;
  std::uint64_t processes = 0;  // changes when a process of the group comes or goes
  std::vector<ProcessStat> members;
};

using ProcessTable = std::map<pid_t, ProcessStat>;
ProcessTable all_processes();

// A leader's entry has the processes of its group, and its descendants that left the group (under timeout(1),
// say). It is empty if there are none.
std::map<pid_t, GroupUsage> usage_of_groups(const std::vector<pid_t>& leaders,
                                            const ProcessTable& table = all_processes());

}  // namespace dtrun::agent
