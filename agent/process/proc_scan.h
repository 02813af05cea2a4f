// Finds and ends processes that belong to an agent's job by the token in their environment or its mark in
// their limits (limit_mark.h), whatever became of their parents, groups and sessions. Never touches a process
// that has neither.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace dtrun::agent {

// Sends SIGKILL to each process whose environment has kEnvAgentToken with `token` in its value, or which
// carries its mark; returns how many there were. A process that forks meanwhile may need another call: see
// look_until_none().
int kill_by_token(const std::string& token);

// Calls `look`, which says how many it found, until it has found none twice in a row: what is born behind a
// look is seen by the next one. At most `most` times; returns how often.
int look_until_none(const std::function<int()>& look, int most);

// Whether this process has a child that is not in `known`; true as well where the kernel does not tell.
bool has_other_children(const std::vector<pid_t>& known);

// Sends SIGKILL to every child that is not in `known`, to the children that come to us by that, and so on,
// and reaps them; gives up after `limit`. Does nothing where the kernel does not tell children.
void kill_other_children(const std::vector<pid_t>& known, std::chrono::milliseconds limit);

}  // namespace dtrun::agent
