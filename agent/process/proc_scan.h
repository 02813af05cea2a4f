// Finds and kills processes of an agent's job: by the tag in their environment, or by the tag in their
// limits (limit_tag.h). It does not matter what became of their parents, groups and sessions.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "proto/base/descriptor.h"

namespace dtrun::agent {

struct FoundProcess {
  pid_t pid = -1;
  Descriptor handle;    // pidfd; not open on a kernel without
  std::string command;  // with its arguments; its name if it has none
};

// All but zombies whose environment has kEnvProcessTag with `tag` in its value, or in a limit,
// and the members of the process group `group` (0: of none). REQUIRES: the group's leader has not been
// reaped.
std::vector<FoundProcess> find_by_tag(const std::string& tag, pid_t group = 0);
bool is_running(const FoundProcess& process);  // a process without a handle: perhaps another of its number
void signal_found(const FoundProcess& process, int number);
std::vector<std::string> commands_of(const std::vector<FoundProcess>& found);

// Sends SIGKILL to each process whose environment has kEnvProcessTag with `tag` in its value, or which
// carries its mark; never to a process that has neither. Returns how many there were. A process that forks
// meanwhile may need another call: see look_until_none().
int kill_by_tag(const std::string& tag);

// Calls `look`, which returns how many processes it found, until it has found none twice in a row: a process
// that is born after one look passed is seen by the next. At most `most` calls; returns how many.
int look_until_none(const std::function<int()>& look, int most);

// True if this process has a child that is not in `known`; also where the kernel does not list children.
bool has_other_children(const std::vector<pid_t>& known);

// Kills and reaps every child that is not in `known`, then the orphans that became our children by that, and
// so on; gives up after `limit`. Does nothing where the kernel does not list children.
void kill_other_children(const std::vector<pid_t>& known, std::chrono::milliseconds limit);

}  // namespace dtrun::agent
